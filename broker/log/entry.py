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

So every reader of the log tells the two apart by the bytes 4 to 8. A command may also stand behind
a record, in the same entry: the two are folded together or not at all. The record says by its own
length where it ends. Which commands stand alone, and which behind a record, is fixed by their kind.
Or further records stand behind a record, of any queues, up to the end of the entry: messages that
came together, folded together or not at all.

A malformed command changes
nothing, on every member alike; a command of a newer version, or of an unknown kind, stops a member
that is too old for it, because passing it over would make the members differ. So each command is
written with the first version that can hold it, and an older member can read all that it knows. How
a command is folded depends on its version alone, so a log has one meaning for ever.

======= ==========================================================================================
version commands
======= ==========================================================================================
   1    all but what follows
   2    offsets with their time
   3    offsets with the position as of which they hold; topics and groups with a limit of their
        number; deletions that take the locks with them
   4    the format of the log; all commands that stand behind a record
   5    several records in one entry
   6    deletions of topics that keep where their queues ended; resets that tell commits from
        before; entries of over 4 MiB
======= ==========================================================================================
"""

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from broker.errors import CommandMalformed, EntryTooNew
from broker.log.command_layout import LogCommand, layout_of
from remoting.message.record import MESSAGE_MAGIC

FORMAT_VERSION: Final = 6  # the newest that is read
OFFSETS_WITH_TIME_VERSION: Final = 2
GUARDED_VERSION: Final = 3
ATTACHED_VERSION: Final = 4
RUNS_VERSION: Final = 5
LARGE_ENTRIES_VERSION: Final = 6
INCARNATIONS_VERSION: Final = 6

_PREFIX: Final = struct.Struct(">I3sB")
PREFIX_BYTES: Final = _PREFIX.size
COMMAND_MARK: Final = b"DLB"
_RECORD_MARK: Final = MESSAGE_MAGIC.to_bytes(4, "big")


class EntryKind(IntEnum):
    """What an entry's body is."""

    RECORD = 0
    COMMAND = 1
    FOREIGN = 2  # not appended by a broker; skipped


class RawCommand(NamedTuple):
    """A command whose members are not read yet."""

    version: int
    kind: int
    members: list[Any]


def is_record(body: bytes) -> bool:
    """Whether the body of an entry is a message record, by its mark."""
    return body[4:8] == _RECORD_MARK


def kind_of(body: bytes) -> EntryKind:
    """What the body of an entry is, by its first eight bytes."""
    mark = body[4:8]
    if mark == _RECORD_MARK:
        return EntryKind.RECORD
    if mark[:3] == COMMAND_MARK:
        return EntryKind.COMMAND
    return EntryKind.FOREIGN


def encode_log_command(command: LogCommand) -> bytes:
    """The body of the entry that holds `command`."""
    layout = layout_of(type(command))
    version = layout.version(command)
    members = layout.members(command, version)
    content: bytes = msgpack.packb([command.kind, *members], use_bin_type=True)
    return _PREFIX.pack(PREFIX_BYTES + len(content), COMMAND_MARK, version) + content


def read_log_command(body: bytes) -> RawCommand:
    """Read a command as far as all have the same form.

    Raises:
        CommandMalformed: it is none.
        EntryTooNew: it is of a format version that this program does not know.
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
