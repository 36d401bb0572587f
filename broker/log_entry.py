"""What the entries of a broker's log hold: a message record, or one command to the broker.

A message record is RocketMQ's own (see `remoting.message`), with its magic at bytes 4 to 8. A
command is eight bytes and a msgpack array `[kind, ...]`:

===== ==== =========================================================================
 off  size value
===== ==== =========================================================================
   0    4  length of the whole entry body, big-endian
   4    3  "DLB"
   7    1  format version: see below
   8       msgpack
===== ==== =========================================================================

So every reader of the log tells the two apart by the bytes 4 to 8. A malformed command changes
nothing, on every member alike; a command of a newer version stops a member that is too old for it,
because passing it over would make the members differ. So each command is written with the first
version that can hold it, and an older member can read all that it knows. How a command is folded
depends on its version alone, so a log has one meaning for ever.

======= ==========================================================================================
version commands
======= ==========================================================================================
   1    all but what follows
   2    offsets with their time
   3    offsets with the position as of which they hold; topics and groups with a limit of their
        number; deletions that take the locks with them
======= ==========================================================================================
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from broker.errors import CommandMalformed, EntryTooNew
from broker.group import ConsumerGroup
from broker.topics import is_legal_name
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MESSAGE_MAGIC

FORMAT_VERSION: Final = 3  # the newest that is read
_FIRST_VERSION: Final = 1
_OFFSETS_WITH_TIME_VERSION: Final = 2
_GUARDED_VERSION: Final = 3

_PREFIX: Final = struct.Struct(">I3sB")
_MARK: Final = b"DLB"
_RECORD_MARK: Final = MESSAGE_MAGIC.to_bytes(4, "big")


class EntryKind(IntEnum):
    """What an entry's body is."""

    RECORD = 0
    COMMAND = 1
    FOREIGN = 2  # not appended by a broker; skipped


class CommandKind(IntEnum):
    """The first element of a command. Numbers are never used again."""

    PUT_TOPIC = 1
    DELETE_TOPIC = 2
    PUT_GROUP = 3
    DELETE_GROUP = 4
    COMMIT_OFFSETS = 5
    KEEP_LOG_FROM = 6
    LOCK_QUEUES = 7


class CommittedOffset(NamedTuple):
    """How far a group has consumed a queue: the offset of the next message to consume."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Create a topic, or change it.

    Attributes:
        config: the topic.
        at_ms: the leader's wall clock, milliseconds since 1970.
        only_if_absent: a topic that exists stays as it is.
        max_topics: with so many topics no other is created. None before version 3: no limit.
    """

    config: TopicConfig
    at_ms: int
    only_if_absent: bool = False
    max_topics: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, its queues and what groups have committed for it.

    `with_locks`: the locks of its queues too; False before version 3.
    """

    topic: str
    at_ms: int
    with_locks: bool = False


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Create a consumer group, or change it.

    `max_groups`: with so many groups no other is created. None before version 3: no limit.
    """

    config: ConsumerGroup
    only_if_absent: bool = False
    max_groups: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a consumer group, and its offsets when asked to.

    `with_locks`: its locks too; False before version 3.
    """

    group: str
    with_offsets: bool
    with_locks: bool = False


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Many offsets at once; the last one of a queue counts.

    Attributes:
        offsets: what was committed.
        at_ms: when the leader wrote them down; its wall clock, milliseconds since 1970. None in an
            entry of format version 1, which has no time. The fold does not use it;
            analytics of the log compute the consumer lag over time from it.
        as_of: how far the leader had applied the log when it wrote them down, as a position. The
            fold passes over the offsets of a topic that was deleted since, and perhaps created
            again: the new one would begin with them. None before version 3.
    """

    offsets: Sequence[CommittedOffset]
    at_ms: int | None
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class KeepLogFrom:
    """Retention: no message before this is kept, on any member.

    Attributes:
        first_index: the first entry that is kept, which begins a segment of the log.
        position: where that entry begins.
        at_ms: when it was decided; the leader's wall clock, milliseconds since 1970.
    """

    first_index: int
    position: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class LockQueues:
    """An ordered consumer locks queues, as far as they are free, or gives them up.

    Attributes:
        group: the consumer group.
        client_id: the consumer.
        is_lock: whether it locks them; else it gives them up.
        time_ms: the log's time for locks, see `broker.queue_locks`.
        queues: topic and queue id of each.
    """

    group: str
    client_id: str
    is_lock: bool
    time_ms: int
    queues: Sequence[tuple[str, int]]


LogCommand: TypeAlias = (
    PutTopic | DeleteTopic | PutGroup | DeleteGroup | CommitOffsets | KeepLogFrom | LockQueues
)


def kind_of(body: bytes) -> EntryKind:
    """What the body of an entry is, by its first eight bytes."""
    mark = body[4:8]
    if mark == _RECORD_MARK:
        return EntryKind.RECORD
    if mark[:3] == _MARK:
        return EntryKind.COMMAND
    return EntryKind.FOREIGN


def encode_log_command(command: LogCommand) -> bytes:
    """The body of the entry that holds `command`."""
    content: bytes = msgpack.packb(_members(command), use_bin_type=True)
    return _PREFIX.pack(_PREFIX.size + len(content), _MARK, _version_of(command)) + content


def _version_of(command: LogCommand) -> int:
    """The first format version that can hold a command."""
    match command:
        case PutTopic(max_topics=int()) | PutGroup(max_groups=int()):
            return _GUARDED_VERSION
        case DeleteTopic(with_locks=True) | DeleteGroup(with_locks=True):
            return _GUARDED_VERSION
        case CommitOffsets(as_of=int()):
            return _GUARDED_VERSION
        case CommitOffsets(at_ms=int()):
            return _OFFSETS_WITH_TIME_VERSION
        case _:
            return _FIRST_VERSION


def decode_log_command(body: bytes) -> LogCommand:
    """Read a command.

    Raises:
        CommandMalformed: it is none.
        EntryTooNew: it is of a format version or a kind that this program does not know.
    """
    if len(body) < _PREFIX.size:
        raise CommandMalformed(f"{len(body)} bytes")
    size, mark, version = _PREFIX.unpack_from(body)
    if mark != _MARK or size != len(body):
        raise CommandMalformed("its mark or its length is wrong")
    if version > FORMAT_VERSION:
        raise EntryTooNew(version)
    try:
        members: Any = msgpack.unpackb(body[_PREFIX.size :], raw=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise CommandMalformed(f"its content cannot be read: {error}") from None
    if not isinstance(members, list) or not members or not isinstance(members[0], int):
        raise CommandMalformed("its content is not an array that begins with a number")
    kind, rest = members[0], members[1:]
    readers = _GUARDED_READERS if version >= _GUARDED_VERSION else _READERS
    reader = readers.get(kind)
    if kind == CommandKind.COMMIT_OFFSETS and version < _OFFSETS_WITH_TIME_VERSION:
        reader = _read_commit_offsets_without_time
    if reader is None:
        raise EntryTooNew(version, kind)
    try:
        return reader(*rest)
    except (TypeError, ValueError, KeyError) as error:
        raise CommandMalformed(f"its members do not fit kind {kind}: {error}") from None


def _members(command: LogCommand) -> list[object]:
    """A command as a msgpack array."""
    match command:
        case PutTopic(config, at_ms, only_if_absent, max_topics):
            topic_put = [CommandKind.PUT_TOPIC, topic_members(config), at_ms, only_if_absent]
            return topic_put if max_topics is None else [*topic_put, max_topics]
        case DeleteTopic(topic, at_ms, _):
            return [CommandKind.DELETE_TOPIC, topic, at_ms]
        case PutGroup(group, only_if_absent, max_groups):
            group_put = [CommandKind.PUT_GROUP, group.as_dict(), only_if_absent]
            return group_put if max_groups is None else [*group_put, max_groups]
        case DeleteGroup(name, with_offsets, _):
            return [CommandKind.DELETE_GROUP, name, with_offsets]
        case CommitOffsets(offsets, at_ms, as_of):
            members: list[object] = [CommandKind.COMMIT_OFFSETS, [list(one) for one in offsets]]
            return [*members, *(value for value in (at_ms, as_of) if value is not None)]
        case KeepLogFrom(first_index, position, at_ms):
            return [CommandKind.KEEP_LOG_FROM, first_index, position, at_ms]
        case LockQueues(group, client_id, is_lock, time_ms, queues):
            rows = [list(one) for one in queues]
            return [CommandKind.LOCK_QUEUES, group, client_id, is_lock, time_ms, rows]


def topic_members(config: TopicConfig) -> list[object]:
    """A topic's configuration as plain values; `read_topic` makes it one again."""
    return [
        config.topic,
        config.read_queue_count,
        config.write_queue_count,
        config.permission,
        config.topic_filter_type,
        config.topic_system_flag,
        config.order,
        dict(config.attributes),
    ]


def read_topic(members: list[Any]) -> TopicConfig:
    """A topic's configuration. Raises ValueError, TypeError."""
    topic, read, write, permission, filter_type, system_flag, order, attributes = members
    # A topic's name is a folder's name on every member, so the fold looks at it again.
    if not is_legal_name(_text(topic)):
        raise ValueError(f"{topic!r:.40} is no topic name")
    return TopicConfig(
        topic,
        _number(read),
        _number(write),
        _number(permission),
        _text(filter_type),
        _number(system_flag),
        bool(order),
        {_text(name): _text(value) for name, value in dict(attributes).items()},
    )


def _read_put_topic(config: list[Any], at_ms: int, only_if_absent: bool) -> PutTopic:
    return PutTopic(read_topic(config), _number(at_ms), bool(only_if_absent))


def _read_put_topic_within(
    config: list[Any], at_ms: int, only_if_absent: bool, max_topics: int
) -> PutTopic:
    topic = read_topic(config)
    return PutTopic(topic, _number(at_ms), bool(only_if_absent), _number(max_topics))


def _read_delete_topic(topic: str, at_ms: int) -> DeleteTopic:
    return DeleteTopic(_text(topic), _number(at_ms))


def _read_delete_topic_and_locks(topic: str, at_ms: int) -> DeleteTopic:
    return DeleteTopic(_text(topic), _number(at_ms), with_locks=True)


def read_group(members: dict[str, Any]) -> ConsumerGroup:
    """A group's configuration. Raises ValueError, TypeError, KeyError."""
    _text(members["group"])
    # Members that a later version adds are refused here: they come with a new format version.
    for name, value in members.items():
        if name != "group":
            _number(value)
    return ConsumerGroup(**members)


def _read_put_group(members: dict[str, Any], only_if_absent: bool) -> PutGroup:
    return PutGroup(read_group(members), bool(only_if_absent))


def _read_put_group_within(
    members: dict[str, Any], only_if_absent: bool, max_groups: int
) -> PutGroup:
    return PutGroup(read_group(members), bool(only_if_absent), _number(max_groups))


def _read_delete_group(group: str, with_offsets: bool) -> DeleteGroup:
    return DeleteGroup(_text(group), bool(with_offsets))


def _read_delete_group_and_locks(group: str, with_offsets: bool) -> DeleteGroup:
    return DeleteGroup(_text(group), bool(with_offsets), with_locks=True)


def _read_commit_offsets(offsets: list[list[Any]], at_ms: int) -> CommitOffsets:
    return CommitOffsets(_committed_offsets(offsets), _number(at_ms))


def _read_commit_offsets_as_of(offsets: list[list[Any]], at_ms: int, as_of: int) -> CommitOffsets:
    return CommitOffsets(_committed_offsets(offsets), _number(at_ms), _number(as_of))


def _read_commit_offsets_without_time(offsets: list[list[Any]]) -> CommitOffsets:
    return CommitOffsets(_committed_offsets(offsets), None)


def _committed_offsets(offsets: list[list[Any]]) -> list[CommittedOffset]:
    return [
        CommittedOffset(_text(group), _text(topic), _number(queue_id), _number(offset))
        for group, topic, queue_id, offset in offsets
    ]


def _read_keep_log_from(first_index: int, position: int, at_ms: int) -> KeepLogFrom:
    return KeepLogFrom(_number(first_index), _number(position), _number(at_ms))


def _read_lock_queues(
    group: str, client_id: str, is_lock: bool, time_ms: int, queues: list[list[Any]]
) -> LockQueues:
    named = [(_text(topic), _number(queue_id)) for topic, queue_id in queues]
    return LockQueues(_text(group), _text(client_id), bool(is_lock), _number(time_ms), named)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


_READERS: Final[dict[int, Callable[..., LogCommand]]] = {
    CommandKind.PUT_TOPIC: _read_put_topic,
    CommandKind.DELETE_TOPIC: _read_delete_topic,
    CommandKind.PUT_GROUP: _read_put_group,
    CommandKind.DELETE_GROUP: _read_delete_group,
    CommandKind.COMMIT_OFFSETS: _read_commit_offsets,
    CommandKind.KEEP_LOG_FROM: _read_keep_log_from,
    CommandKind.LOCK_QUEUES: _read_lock_queues,
}

_GUARDED_READERS: Final[dict[int, Callable[..., LogCommand]]] = {
    **_READERS,
    CommandKind.PUT_TOPIC: _read_put_topic_within,
    CommandKind.DELETE_TOPIC: _read_delete_topic_and_locks,
    CommandKind.PUT_GROUP: _read_put_group_within,
    CommandKind.DELETE_GROUP: _read_delete_group_and_locks,
    CommandKind.COMMIT_OFFSETS: _read_commit_offsets_as_of,
}
