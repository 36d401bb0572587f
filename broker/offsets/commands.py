"""The log's command that commits offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from broker.log.command_layout import Added
from broker.log.entry import GUARDED_VERSION, OFFSETS_WITH_TIME_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.offsets.state import OFFSETS, OffsetMoved
from broker.topics.state import TOPICS
from dledger import Entry


class CommittedOffset(NamedTuple):
    """The offset of the next message that a group wants of a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Many offsets at once; the last one of a queue counts.

    Attributes:
        at_ms: the leader's wall clock. None in format version 1. The fold ignores it; analytics of
            the log compute the consumer lag over time from it.
        as_of: up to which position the leader had applied the log. The fold ignores offsets of a
            topic that was deleted since, and perhaps created again: the new one would begin with
            them. None before version 3.
    """

    kind: ClassVar[int] = 5

    offsets: Sequence[CommittedOffset]
    at_ms: Annotated[int | None, Added(OFFSETS_WITH_TIME_VERSION)] = None
    as_of: Annotated[int | None, Added(GUARDED_VERSION)] = None


def _commit(
    state: BrokerState, folded: Folded, command: CommitOffsets, _entry: Entry
) -> EntryRefused | None:
    topics, offsets = state[TOPICS], state[OFFSETS]
    tables, has_resets = offsets.tables, bool(offsets.resets)
    for name, topic, queue_id, offset in command.offsets:
        if command.as_of is not None and not topics.existed(topic, command.as_of):
            continue
        if has_resets and offsets.reset(name, topic, queue_id) not in (None, offset):
            continue  # committed before the reset
        table = tables.changing((name, topic))
        if table is None:
            table = tables[name, topic] = {}
        before = table.get(queue_id)
        folded.tell(OffsetMoved, name, topic, queue_id, before, offset, "committed")
        table[queue_id] = offset
    return None


COMMIT_OFFSETS: Final = CommandType(CommitOffsets, _commit)
