"""The log's commands that move consumer groups."""

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
    """A group is moved in a topic.

    Attributes:
        offsets: by queue: the next message to consume.
        as_of: how far the leader had applied the log, as a position. The offsets are those of the
            topic as it was there.
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
    """A group reads a queue where it was moved: its commits count again.

    Attributes:
        offset: where it was moved.
        at_ms: when; the leader's wall clock, milliseconds since 1970. For a while longer, leaders
            tell commits from before (see `broker.offsets.generations`). None before version 6: all
            commits count from here on.
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
