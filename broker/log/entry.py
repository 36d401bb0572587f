"""What an entry of a broker's log holds: message records, or one command to the broker.

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

So bytes 4 to 8 tell records and commands apart. A command may also follow a record in the same
entry: the state machine takes both or neither. The record's own length says where it ends. Whether
a command stands alone or follows a record is fixed by its kind. Instead of a command, further
records may follow up to the end of the entry, for any queues: messages that were sent together. The
state machine takes all of them or none.

A malformed command changes nothing, on every member. A command of a newer version or an unknown
kind stops a member that is too old for it, because skipping it would make the members differ. So
each command is written with the first version that can hold it, and an older member reads all that
it knows. The effect of a command depends on its version alone, so a log never changes its meaning.

======= ==========================================================================================
version commands
======= ==========================================================================================
   1    all but the following
   2    offsets with their time
   3    offsets with the position as of which they hold; topics and groups with a limit of their
        number; deletions that take the locks with them
   4    the format of the log; all commands that follow a record
   5    several records in one entry
   6    deletions of topics that keep where their queues ended; resets that tell commits from
        before; entries of over 4 MiB
   7    users, and the rules for them
   8    renewals that keep the handles of a delivery; suspended messages; attributes of groups;
        lite topics; records of who asked for changes
======= ==========================================================================================
"""

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from broker.errors import CommandMalformed, EntryTooNew
from broker.log.command_layout import LogCommand, layout_of
from remoting.message.record import MESSAGE_MAGIC

FORMAT_VERSION: Final = 8  # the newest that is read
OFFSETS_WITH_TIME_VERSION: Final = 2
GUARDED_VERSION: Final = 3
ATTACHED_VERSION: Final = 4
RUNS_VERSION: Final = 5
LARGE_ENTRIES_VERSION: Final = 6
INCARNATIONS_VERSION: Final = 6
USERS_VERSION: Final = 7
RENEWALS_VERSION: Final = 8
GROUP_ATTRIBUTES_VERSION: Final = 8
LITE_VERSION: Final = 8
AUDIT_VERSION: Final = 8

_PREFIX: Final = struct.Struct(">I3sB")
PREFIX_BYTES: Final = _PREFIX.size
COMMAND_MARK: Final = b"DLB"
_RECORD_MARK: Final = MESSAGE_MAGIC.to_bytes(4, "big")


class EntryKind(IntEnum):
    """The kind of an entry's body."""

    RECORD = 0
    COMMAND = 1
    FOREIGN = 2  # not appended by a broker; skipped


class RawCommand(NamedTuple):
    """A command whose elements have not been read yet."""

    version: int
    kind: int
    members: list[Any]


def is_record(body: bytes) -> bool:
    return body[4:8] == _RECORD_MARK


def kind_of(body: bytes) -> EntryKind:
    """Tell the kind of an entry's body by its first eight bytes."""
    mark = body[4:8]
    if mark == _RECORD_MARK:
        return EntryKind.RECORD
    if mark[:3] == COMMAND_MARK:
        return EntryKind.COMMAND
    return EntryKind.FOREIGN


def encode_log_command(command: LogCommand) -> bytes:
    layout = layout_of(type(command))
    version = layout.version(command)
    members = layout.members(command, version)
    content: bytes = msgpack.packb([command.kind, *members], use_bin_type=True)
    return _PREFIX.pack(PREFIX_BYTES + len(content), COMMAND_MARK, version) + content


def read_log_command(body: bytes) -> RawCommand:
    """Read the part of a command that has the same form in all kinds.

    Raises:
        CommandMalformed: it is not a command.
        EntryTooNew: this program does not know its format version.
    """
    if len(body) < PREFIX_BYTES:
        raise CommandMalformed(f"{len(body)} bytes")
    size, mark, version = _PREFIX.unpack_from(body)
    if mark != COMMAND_MARK or size != len(body):
        raise CommandMalformed("its mark or its length is wrong")
    if version > FORMAT_VERSION:
        raise EntryTooNew(version)
    try:
        members: Any = msgpack.unpackb(body[PREFIX_BYTES:], raw=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise CommandMalformed(f"its content cannot be read: {error}") from None
    if not isinstance(members, list) or not members or not isinstance(members[0], int):
        raise CommandMalformed("its content is not an array that begins with a number")
    return RawCommand(version, members[0], members[1:])
