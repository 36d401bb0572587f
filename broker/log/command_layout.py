"""How a command of the log is written and read: by its fields, in their order.

A command is a frozen dataclass with a class variable `kind`, and another one, `since`, if its kind
came after format version 1. The type of a field says what the array holds for it:

================================ ==================================================================
type                             in the array ================================
================================================================== `str`, `int`, `bool`
text, a whole number, anything that is true or false `Natural`                        a whole number
from 0 on that fits 63 bits: a time, a position `X | None`                       nil, or X
`Sequence[X]`, `tuple[X, ...]`   an array `tuple[X, Y]`, a `NamedTuple`    an array of as many
`Mapping[X, Y]`                  an array of pairs `Annotated[X, Form(...)]`        the value that
the form writes ================================
==================================================================

A field of `Annotated[X, Added(version)]` is written from that version on, and has its default in
earlier ones. A field of `Annotated[bool, Implied(version)]` is never written, and is true from that
version on. A field called `version` is the version itself. A property `needed_version` of a command
says which version its values need.

Tools that show the log use the same fields, see `spelt_out`; `Told` gives a field another name, and
a class variable `told` gives the kind one. A command that carries a time has it as `at_ms`, a field
or a property.
"""

from __future__ import annotations

import types
from collections import abc
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

FIRST_VERSION: Final = 1

# The largest number in SQLite's tables and in the fields of a record.
_MAX_NATURAL: Final = (1 << 63) - 1


class LogCommand(Protocol):
    """One command: an immutable value. Each feature has its own classes, see `log.state`."""

    kind: ClassVar[int]  # the first element of the array; a number is never used again


C = TypeVar("C", bound=LogCommand)


def text(value: object) -> str:
    """Check that an element is text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def number(value: object) -> int:
    """Check that an element is a whole number. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def natural(value: object) -> int:
    """Check that an element is a time or a position of 63 bits. Raises TypeError, ValueError."""
    found = number(value)
    if not 0 <= found <= _MAX_NATURAL:
        raise ValueError(f"{found} is no time and no position")
    return found


class Form(NamedTuple):
    """How a value is read from the array and written to it.

    Attributes:
        read: may raise TypeError, ValueError, KeyError.
        write: makes what msgpack can write; None to write the value itself.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], object] | None = None


Natural = Annotated[int, Form(natural)]


class Added(NamedTuple):
    """Marks a field that commands of earlier versions lack."""

    version: int


class Implied(NamedTuple):
    """Marks a field that is true in commands of this version and later ones."""

    version: int


class Told(NamedTuple):
    """The name of a field in tools, or the names of the parts of its pairs and rows."""

    names: tuple[str, ...]


class _Member(NamedTuple):
    """A field that is written in the array."""

    name: str
    since: int
    default: Any
    form: Form
    told: str
    tell: Tell | None


class CommandLayout(Generic[C]):
    """The layout of one class of commands.

    Attributes:
        since: the first format version that has the kind.
    """

    def __init__(self, command: type[C]) -> None:
        hints = get_type_hints(command, include_extras=True)
        self._command = command
        self._has_version = "version" in hints
        self.since: int = getattr(command, "since", FIRST_VERSION)
        self._implied: dict[str, int] = {}
        self._members: list[_Member] = []
        for one in fields(command):  # type: ignore[arg-type]  # a protocol is no dataclass
            hint = hints[one.name]
            notes = getattr(hint, "__metadata__", ())
            implied = [note.version for note in notes if isinstance(note, Implied)]
            added = [note.version for note in notes if isinstance(note, Added)]
            if implied:
                self._implied[one.name] = implied[0]
            elif one.name != "version":
                since = added[0] if added else self.since
                read = form(_without_none(hint) if added else hint)  # never nil where written
                names = next((note.names for note in notes if isinstance(note, Told)), ())
                told, parts = (names[0], ()) if len(names) == 1 else (_told(one.name), names)
                tell = _tell_of(hint, parts)
                self._members.append(_Member(one.name, since, one.default, read, told, tell))

    def version(self, command: C) -> int:
        if self._has_version:
            own: int = getattr(command, "version")  # noqa: B009  # not of every command
            return own
        needed: int = getattr(command, "needed_version", self.since)
        for name, version in self._implied.items():
            if getattr(command, name):
                needed = max(needed, version)
        for member in self._members:
            if member.since > needed and getattr(command, member.name) != member.default:
                needed = member.since
        return needed

    def members(self, command: C, version: int) -> list[object]:
        """Return the elements of the array behind the kind."""
        return [
            getattr(command, name) if form.write is None else form.write(getattr(command, name))
            for name, since, _, form, _, _ in self._members
            if since <= version
        ]

    def read(self, version: int, members: Sequence[Any]) -> C:
        """Make a command of its elements. Raises TypeError, ValueError, KeyError."""
        wanted = [member for member in self._members if member.since <= version]
        values = {
            member.name: member.form.read(value)
            for member, value in zip(wanted, members, strict=True)
        }
        for name, since in self._implied.items():
            values[name] = version >= since
        if self._has_version:
            values["version"] = version
        return self._command(**values)

    def spelt_out(self, command: C, version: int) -> dict[str, object]:
        """Return the command by names, in types of JSON, as written in a format version."""
        return {
            told: getattr(command, name) if tell is None else tell(getattr(command, name))
            for name, since, _, _, told, tell in self._members
            if since <= version
        }


def _told(name: str) -> str:
    """Return the name of a field in tools, which call a queue "queue" everywhere."""
    return "queue" if name == "queue_id" else name


Tell = Callable[[Any], object]


def _tell_of(hint: Any, parts: tuple[str, ...] = ()) -> Tell | None:
    """Return the function that turns values of a type into types of JSON; None if none
    is needed.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _tell_of(arguments[0], parts)
    if origin in (Union, types.UnionType):
        tell = _tell_of(_without_none(hint))
        return None if tell is None else _tell_optional(tell)
    if origin is abc.Mapping:
        return lambda values: [dict(zip(parts, pair, strict=True)) for pair in values.items()]
    if origin in (abc.Sequence, tuple) and (origin is not tuple or arguments[-1] is Ellipsis):
        tell = _tell_of(arguments[0], parts)
        return list if tell is None else lambda values: [tell(one) for one in values]
    if origin is tuple:
        return lambda row: dict(zip(parts, row, strict=True))
    if hasattr(hint, "as_dict"):
        return lambda value: value.as_dict()
    if hasattr(hint, "_fields"):
        names = tuple(map(_told, hint._fields))
        return lambda row: dict(zip(names, row, strict=True))
    return asdict if is_dataclass(hint) else None


@cache  # bounded by the number of classes of commands
def layout_of(command: type[C]) -> CommandLayout[C]:
    return CommandLayout(command)


_PLAIN: Final[dict[Any, Form]] = {
    str: Form(text),
    int: Form(number),
    bool: Form(bool),
}


def form(hint: Any) -> Form:
    """Return the form of a type. Raises TypeError if the table above lacks the type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        forms = [one for one in arguments[1:] if isinstance(one, Form)]
        return forms[0] if forms else form(arguments[0])
    if origin in (Union, types.UnionType):
        of = form(_without_none(hint))
        return Form(lambda value: None if value is None else of.read(value))
    if origin is abc.Mapping:
        return _pairs(*map(form, arguments))
    if origin in (abc.Sequence, tuple) and (origin is not tuple or arguments[-1] is Ellipsis):
        return _array(list if origin is abc.Sequence else tuple, form(arguments[0]))
    if origin is tuple:
        return _row(lambda *values: values, arguments)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _row(hint, tuple(get_type_hints(hint, include_extras=True).values()))
    raise TypeError(f"a command cannot have a field of type {hint}")


def _tell_optional(tell: Tell) -> Tell:
    return lambda value: None if value is None else tell(value)


def _without_none(hint: Any) -> Any:
    """Return X of `X | None` or of X, annotated or not."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    return next(one for one in get_args(hint) if one is not type(None))


def _pairs(key: Form, value: Form) -> Form:
    return Form(
        lambda pairs: {key.read(one): value.read(other) for one, other in pairs},
        lambda mapping: [list(pair) for pair in mapping.items()],
    )


def _array(make: Callable[[list[Any]], Any], of: Form) -> Form:
    read = of.read
    return Form(lambda values: make([read(value) for value in values]))


def _row(make: Callable[..., Any], hints: tuple[Any, ...]) -> Form:
    checks = [form(hint).read for hint in hints]

    def read(values: Any) -> Any:
        made = make(*values)
        if len(made) != len(checks):
            raise ValueError(f"{len(made)} values where {len(checks)} are expected")
        for check, value in zip(checks, made, strict=False):
            check(value)
        return made

    return Form(read)
