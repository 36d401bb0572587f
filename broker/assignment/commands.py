"""The log's command that sets how a group reads a topic."""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.assignment.state import MODES, Mode
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from dledger import Entry


@dataclass(frozen=True, slots=True)
class SetMode:
    """An operator sets how a group reads a topic.

    Attributes:
        name: of the mode.
        shares: of the mode.
        max_modes: no mode is added if there are as many.
    """

    kind: ClassVar[int] = 27
    since: ClassVar[int] = ATTACHED_VERSION

    topic: str
    group: str
    name: str
    shares: int
    max_modes: int


def _set(
    state: BrokerState, _folded: Folded, command: SetMode, _entry: Entry
) -> EntryRefused | None:
    modes, key = state[MODES].modes, (command.topic, command.group)
    if key not in modes and not modes.has_room(command.max_modes):
        return EntryRefused(f"{len(modes)} request modes are set already")
    modes[key] = Mode(command.name, command.shares)
    return None


SET_MODE: Final = CommandType(SetMode, _set)
