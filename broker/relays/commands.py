"""The log's command by which a leader announces its address."""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.relays.state import LEADER_PLACE
from dledger import Entry


@dataclass(frozen=True, slots=True)
class LeadFrom:
    """A member leads now. Only groups with one address write it; followers relay their clients to
    it.

    `address`: "host:port" at which the other members reach it.
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
