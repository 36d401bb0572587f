"""Encodes the commands of replicated objects and their answers.

A command is a msgpack array: the object's name, the operation, its arguments. An answer is a pair:
OK and the result, or REFUSED and the reason. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgpack

from dledger.errors import DLedgerError, Rejected

OK, REFUSED = 0, 1

# Every command contains the names of objects and keys; longer ones are a mistake of the caller.
MAX_NAME_BYTES = 255
MAX_KEY_BYTES = 4 * 1024

Key = str | bytes | int


class CommandRefused(Rejected):
    """The command is in the log but changed nothing: the object could not carry it out.

    `reason` is the same on every member. A retry is refused again until the object changes.
    """

    reason: str
    _template = "refused: {reason}"


class AppendNotAwaitable(DLedgerError):
    """The `append` of the appender is a plain function: no call through it would be sent."""

    appender: str
    _template = (
        "`append` of {appender} is no coroutine, and these calls await it: use session.do(lambda "
        "session: object.through(session).call())"
    )


class Command(NamedTuple):
    name: str
    operation: str
    arguments: Sequence[object]


class HasResult(Protocol):
    @property
    def index(self) -> int: ...

    @property
    def result(self) -> object: ...


class Appender(Protocol):
    async def append(self, body: bytes) -> HasResult:
        """Append one body; returns once it is applied."""
        ...


class Calls:
    """Sends the commands of one object, through a node that leads or through a session.

    Raises AppendNotAwaitable for an appender of `dledger.blocking`.
    """

    def __init__(self, appender: Appender, name: str) -> None:
        if not inspect.iscoroutinefunction(appender.append):
            raise AppendNotAwaitable(type(appender).__name__)
        self._appender = appender
        self.name = name

    async def _call(self, operation: str, *arguments: object) -> object:
        return (await self._call_at(operation, *arguments))[1]

    async def _call_at(self, operation: str, *arguments: object) -> tuple[int, object]:
        """Call, and return the index of the call's entry as well."""
        body = encode_command(Command(self.name, operation, arguments))
        appended = await self._appender.append(body)
        return appended.index, unpack_answer(appended.result)


def encode_command(command: Command) -> bytes:
    """Return the body of an entry. Raises TypeError for arguments that are not plain values."""
    packed: bytes = msgpack.packb([command.name, command.operation, *command.arguments])
    try:
        msgpack.unpackb(packed, strict_map_key=False)
    except TypeError as error:
        raise TypeError("a tuple cannot be a key here: tuples come back as lists") from error
    return packed


def decode_command(body: bytes) -> Command:
    """Decode the command in an entry. Raises CommandRefused."""
    try:
        parts = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:  # TypeError: a list as a key
        raise CommandRefused("the entry is not a command") from error
    if not isinstance(parts, list) or len(parts) < 2:
        raise CommandRefused("the entry is not a command")
    name, operation, *arguments = parts
    if not isinstance(name, str) or not isinstance(operation, str):
        raise CommandRefused("a command begins with two names")
    return Command(name, operation, arguments)


def unpack_answer(answer: object) -> object:
    """Return the result in an answer. Raises CommandRefused."""
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        raise CommandRefused("no object of this name answers: is it part of the state machine?")
    kind, content = answer
    if kind != OK:
        raise CommandRefused(str(content))
    return content


def pack(value: object) -> bytes:
    """Encode a value to keep it. Two values are equal if their bytes are equal."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(packed: bytes) -> object:
    """Decode a kept value: a new object each time, so that callers cannot change the state."""
    return msgpack.unpackb(packed, strict_map_key=False)


def key_of(value: object) -> Key:
    """Check that an argument is a key: text, bytes or an integer. Raises CommandRefused."""
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        raise CommandRefused(f"a key is text, bytes or an integer, not {type(value).__name__}")
    size = len(value.encode()) if isinstance(value, str) else 0
    if isinstance(value, bytes):
        size = len(value)
    if size > MAX_KEY_BYTES:
        raise CommandRefused(f"a key of {size} bytes; the limit is {MAX_KEY_BYTES}")
    return value


def integer_of(value: object) -> int:
    """Check that an argument is an integer of 64 bits. Raises CommandRefused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise CommandRefused(f"an integer is needed, not {type(value).__name__}")
    return value


def count_arguments(arguments: Sequence[object], count: int) -> Sequence[object]:
    """Return the arguments if there are `count` of them. Raises CommandRefused."""
    if len(arguments) != count:
        raise CommandRefused(f"{len(arguments)} arguments instead of {count}")
    return arguments
