"""The log's commands that move consumer groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from broker.log.entry import ATTACHED_VERSION, INCARNATIONS_VERSION, natural, text
from broker.log.folded import EntryRefused, Folded
from broker.log.registry import CommandType
from broker.log.state import BrokerState
from broker.offsets.state import OFFSETS
from broker.topics.state import TOPICS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """A group is moved in a topic.

    Attributes:
        group: the consumer group.
        topic: the topic.
        offsets: by queue: the next message to consume.
        at_ms: when; the leader's wall clock, milliseconds since 1970.
        as_of: how far the leader had applied the log, as a position. The offsets are those of the
            topic as it was there.
    """

    kind: ClassVar[int] = 21
    version: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    offsets: Mapping[int, int]
    at_ms: int
    as_of: int

    def members(self) -> list[object]:
        """As in LogCommand."""
        offsets = [list(pair) for pair in self.offsets.items()]
        return [self.group, self.topic, offsets, self.at_ms, self.as_of]


@dataclass(frozen=True, slots=True)
class EndReset:
    """A group reads a queue where it was moved: its commits count again.

    Attributes:
        group: the consumer group.
        topic: the topic.
        queue_id: the queue.
        offset: where it was moved.
        at_ms: when; the leader's wall clock, milliseconds since 1970. For a while longer, leaders
            tell commits from before (see `broker.offsets.generations`). None before version 6: all
            commits count from here on.
    """

    kind: ClassVar[int] = 22

    group: str
    topic: str
    queue_id: int
    offset: int
    at_ms: int | None = None

    @property
    def version(self) -> int:
        """As in LogCommand."""
        return ATTACHED_VERSION if self.at_ms is None else INCARNATIONS_VERSION

    def members(self) -> list[object]:
        """As in LogCommand."""
        members: list[object] = [self.group, self.topic, self.queue_id, self.offset]
        return members if self.at_ms is None else [*members, self.at_ms]


def _reset(
    state: BrokerState, _folded: Folded, command: ResetOffsets, _entry: Entry
) -> EntryRefused | None:
    if not state[TOPICS].existed(command.topic, command.as_of):
        return EntryRefused(f"offsets of topic {command.topic}, which was deleted")
    offsets, key = state[OFFSETS], (command.group, command.topic)
    offsets.tables.setdefault(key, {}).update(command.offsets)
    offsets.resets.setdefault(key, {}).update(command.offsets)
    for queue_id in command.offsets:
        offsets.began.forget((*key, queue_id))
    offsets.resets_made += 1
    return None


def _end_reset(
    state: BrokerState, _folded: Folded, command: EndReset, _entry: Entry
) -> EntryRefused | None:
    offsets, key = state[OFFSETS], (command.group, command.topic, command.queue_id)
    if offsets.reset(*key) == command.offset:
        offsets.end_reset(*key)
        if command.at_ms is not None:
            offsets.began.begin(key, command.at_ms)
    return None


def _read_reset(
    group: str, topic: str, offsets: list[list[Any]], at_ms: int, as_of: int
) -> ResetOffsets:
    table = {natural(queue_id): natural(offset) for queue_id, offset in offsets}
    if not table:
        raise ValueError("no queue")
    return ResetOffsets(text(group), text(topic), table, natural(at_ms), natural(as_of))


RESET_OFFSETS: Final = CommandType(ResetOffsets, {ATTACHED_VERSION: _read_reset}, _reset)
END_RESET: Final = CommandType(
    EndReset,
    {
        ATTACHED_VERSION: lambda group, topic, queue_id, offset: EndReset(
            text(group), text(topic), natural(queue_id), natural(offset)
        ),
        INCARNATIONS_VERSION: lambda group, topic, queue_id, offset, at_ms: EndReset(
            text(group), text(topic), natural(queue_id), natural(offset), natural(at_ms)
        ),
    },
    _end_reset,
)
