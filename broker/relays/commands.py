"""The log's command by which a leader says where it takes clients."""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.relays.state import LEADER_PLACE
from dledger import Entry


@dataclass(frozen=True, slots=True)
class LeadFrom:
    """A member leads now. Only groups with one address write it; the other members pass their
    clients on to it.

    Attributes:
        node_id: the member.
        address: "host:port" at which the other members reach it.
    """

    kind: ClassVar[int] = 8

    node_id: str
    address: str


def _lead(
    state: BrokerState, _folded: Folded, command: LeadFrom, _entry: Entry
) -> EntryRefused | None:
    place = state[LEADER_PLACE]
    place.node_id, place.address = command.node_id, command.address
    return None


LEAD_FROM: Final = CommandType(LeadFrom, _lead)
