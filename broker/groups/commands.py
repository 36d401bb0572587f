"""The log's commands that create, change and delete consumer groups."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.groups.config import ConsumerGroup, read_group
from broker.groups.state import GROUPS
from broker.log.command_layout import FIRST_VERSION, Added, Form, Implied, Told, number
from broker.log.entry import ATTACHED_VERSION, GROUP_ATTRIBUTES_VERSION, GUARDED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType, Deletion
from dledger import Entry


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Create a consumer group, or change it.

    `max_groups`: no group is created if there are as many. None before version 3: no limit.
    """

    kind: ClassVar[int] = 3

    config: Annotated[ConsumerGroup, Form(read_group, ConsumerGroup.as_dict), Told(("group",))]
    only_if_absent: bool = False
    max_groups: Annotated[int | None, Added(GUARDED_VERSION)] = None

    @property
    def needed_version(self) -> int:
        # Configurations that are not plain came with version 4, and attributes with version 8.
        is_limited = self.max_groups is not None
        if is_limited and self.config.attributes:
            return GROUP_ATTRIBUTES_VERSION
        return ATTACHED_VERSION if is_limited and not self.config.is_plain else FIRST_VERSION


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a consumer group, and optionally its offsets.

    `with_locks`: also its locks; False before version 3.
    """

    kind: ClassVar[int] = 4

    group: str
    with_offsets: bool
    with_locks: Annotated[bool, Implied(GUARDED_VERSION)] = False


@dataclass(frozen=True, slots=True)
class Forbid:
    """An operator forbids a group to read a topic, or allows it.

    `max_forbidden`: no pair is forbidden if there are as many.
    """

    kind: ClassVar[int] = 32
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    is_forbidden: Annotated[bool, Form(lambda value: bool(number(value)))]
    max_forbidden: int


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


PUT_GROUP: Final = CommandType(PutGroup, _put)
DELETE_GROUP: Final = CommandType(DeleteGroup, _delete)
FORBID: Final = CommandType(Forbid, _forbid)
