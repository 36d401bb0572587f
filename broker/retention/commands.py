"""The log's command that drops its beginning."""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.messages.state import MESSAGES
from dledger import Entry


@dataclass(frozen=True, slots=True)
class KeepLogFrom:
    """No earlier message is kept, on any member.

    Attributes:
        first_index: the first entry that is kept, which begins a segment of the log.
        position: where that entry begins.
    """

    kind: ClassVar[int] = 6

    first_index: int
    position: int
    at_ms: int


def _keep(
    state: BrokerState, _folded: Folded, command: KeepLogFrom, entry: Entry
) -> EntryRefused | None:
    """Drop the log's beginning. Positions only grow, and never pass the entry itself."""
    messages = state[MESSAGES]
    first_index, position = command.first_index, command.position
    if not (
        messages.kept_from < first_index <= entry.index
        and messages.kept_position < position <= entry.pos
    ):
        return EntryRefused(
            f"retention to entry {first_index} at {position}, where entry {messages.kept_from} at "
            f"{messages.kept_position} is the first"
        )
    needed_from = state.needed_from()
    if needed_from is not None and needed_from < position:
        return EntryRefused(f"the message at {needed_from} is waited for")
    messages.kept_from, messages.kept_position = first_index, position
    messages.time_marks.drop_before(first_index)
    messages.passed_over.drop_before(first_index)
    return None


KEEP_LOG_FROM: Final = CommandType(KeepLogFrom, _keep)
