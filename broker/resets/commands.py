"""The log's commands that reset the offsets of consumer groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.log.command_layout import Added, Natural, Told
from broker.log.entry import ATTACHED_VERSION, INCARNATIONS_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.offsets.state import OFFSETS, OffsetMoved
from broker.topics.state import TOPICS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """The offsets of a group in a topic are reset.

    Attributes:
        offsets: by queue: the next message to consume.
        as_of: the log position that the leader had applied. The offsets are those of the topic that
            existed there.
    """

    kind: ClassVar[int] = 21
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    offsets: Annotated[Mapping[Natural, Natural], Told(("queue", "offset"))]
    at_ms: Natural
    as_of: Natural

    def __post_init__(self) -> None:
        if not self.offsets:
            raise ValueError("no queue")


@dataclass(frozen=True, slots=True)
class EndReset:
    """A group reads a queue at the offset it was reset to: its commits count again.

    Attributes:
        offset: that offset.
        at_ms: None before version 6: all commits count from here on. Otherwise leaders ignore
            commits from before the reset for a while longer (see `broker.offsets.generations`).
    """

    kind: ClassVar[int] = 22
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    queue_id: Natural
    offset: Natural
    at_ms: Annotated[Natural | None, Added(INCARNATIONS_VERSION)] = None


def _reset(
    state: BrokerState, folded: Folded, command: ResetOffsets, _entry: Entry
) -> EntryRefused | None:
    if not state[TOPICS].existed(command.topic, command.as_of):
        return EntryRefused(f"offsets of topic {command.topic}, which was deleted")
    offsets, key = state[OFFSETS], (command.group, command.topic)
    table = offsets.tables.setdefault(key, {})
    for queue_id, offset in command.offsets.items():
        folded.tell(OffsetMoved, *key, queue_id, table.get(queue_id), offset, "reset")
    table.update(command.offsets)
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


RESET_OFFSETS: Final = CommandType(ResetOffsets, _reset)
END_RESET: Final = CommandType(EndReset, _end_reset)
