"""The log's commands that create, change and delete consumer groups."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from broker.groups.config import ConsumerGroup, read_group
from broker.groups.state import GROUPS
from broker.log.entry import ATTACHED_VERSION, FIRST_VERSION, GUARDED_VERSION, number, text
from broker.log.folded import EntryRefused, Folded
from broker.log.registry import CommandType
from broker.log.state import BrokerState, Deletion
from dledger import Entry


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Create a consumer group, or change it.

    `max_groups`: with so many groups no other is created. None before version 3: no limit.
    """

    kind: ClassVar[int] = 3

    config: ConsumerGroup
    only_if_absent: bool = False
    max_groups: int | None = None

    @property
    def version(self) -> int:
        """As in LogCommand."""
        if self.max_groups is None:
            return FIRST_VERSION
        return GUARDED_VERSION if self.config.is_plain else ATTACHED_VERSION

    def members(self) -> list[object]:
        """As in LogCommand."""
        members = [self.config.as_dict(), self.only_if_absent]
        return members if self.max_groups is None else [*members, self.max_groups]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a consumer group, and its offsets when asked to.

    `with_locks`: its locks too; False before version 3.
    """

    kind: ClassVar[int] = 4

    group: str
    with_offsets: bool
    with_locks: bool = False

    @property
    def version(self) -> int:
        """As in LogCommand."""
        return GUARDED_VERSION if self.with_locks else FIRST_VERSION

    def members(self) -> list[object]:
        """As in LogCommand."""
        return [self.group, self.with_offsets]


@dataclass(frozen=True, slots=True)
class Forbid:
    """An operator forbids a group to read a topic, or lets it.

    Attributes:
        group: the consumer group.
        topic: the topic.
        is_forbidden: whether it may not.
        max_forbidden: with so many no other is forbidden.
    """

    kind: ClassVar[int] = 32
    version: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    is_forbidden: bool
    max_forbidden: int

    def members(self) -> list[object]:
        """As in LogCommand."""
        return [self.group, self.topic, self.is_forbidden, self.max_forbidden]


def _read_put(members: dict[str, Any], only_if_absent: bool) -> PutGroup:
    return PutGroup(read_group(members), bool(only_if_absent))


def _read_put_within(members: dict[str, Any], only_if_absent: bool, max_groups: int) -> PutGroup:
    return PutGroup(read_group(members), bool(only_if_absent), number(max_groups))


def _read_delete(group: str, with_offsets: bool) -> DeleteGroup:
    return DeleteGroup(text(group), bool(with_offsets))


def _read_delete_with_locks(group: str, with_offsets: bool) -> DeleteGroup:
    return DeleteGroup(text(group), bool(with_offsets), with_locks=True)


def _put(
    state: BrokerState, _folded: Folded, command: PutGroup, _entry: Entry
) -> EntryRefused | None:
    groups, name, limit = state[GROUPS].configs, command.config.group, command.max_groups
    if name not in groups:
        if limit is not None and len(groups) >= limit:
            return EntryRefused(f"there are {len(groups)} consumer groups: delete one first")
    elif command.only_if_absent:
        return None
    groups[name] = command.config
    return None


def _delete(
    state: BrokerState, _folded: Folded, command: DeleteGroup, _entry: Entry
) -> EntryRefused | None:
    state[GROUPS].configs.pop(command.group, None)
    state.group_deleted(Deletion(command.group, command.with_offsets, command.with_locks))
    return None


def _forbid(
    state: BrokerState, _folded: Folded, command: Forbid, _entry: Entry
) -> EntryRefused | None:
    groups, pair = state[GROUPS], (command.group, command.topic)
    if not command.is_forbidden:
        groups.forbidden.pop(pair, None)
    elif pair not in groups.forbidden and not groups.forbidden.has_room(command.max_forbidden):
        return EntryRefused(f"{command.max_forbidden} groups are kept from topics already")
    else:
        groups.forbidden[pair] = None
    return None


PUT_GROUP: Final = CommandType(
    PutGroup, {FIRST_VERSION: _read_put, GUARDED_VERSION: _read_put_within}, _put
)
DELETE_GROUP: Final = CommandType(
    DeleteGroup, {FIRST_VERSION: _read_delete, GUARDED_VERSION: _read_delete_with_locks}, _delete
)
FORBID: Final = CommandType(
    Forbid,
    {
        ATTACHED_VERSION: lambda group, topic, is_forbidden, max_forbidden: Forbid(
            text(group), text(topic), bool(number(is_forbidden)), number(max_forbidden)
        )
    },
    _forbid,
)
