"""The folded log, and the parts and commands that features add to it.

A feature defines its commands and parts in its own folder. If two features claim a number or a
name, the program does not start. A feature finds its part by the `StatePart` that it defined:
`state[OFFSETS].committed(...)`. Equal logs make equal states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from broker.errors import CommandMalformed, EntryTooNew, FeatureClash
from broker.log.command_layout import CommandLayout, LogCommand, layout_of
from broker.log.entry import read_log_command
from broker.log.folded import EntryRefused, Folded
from dledger import Entry

C = TypeVar("C", bound=LogCommand)
K = TypeVar("K")
S = TypeVar("S")
V = TypeVar("V")


class Deletion(NamedTuple):
    """The deletion of a topic or a consumer group.

    Attributes:
        with_offsets: whether its committed offsets go.
        with_locks: whether its locks go; entries before version 3 kept them.
        keeps_ends: whether the ends of a topic's queues are remembered; not before version 6.
    """

    name: str
    with_offsets: bool
    with_locks: bool
    keeps_ends: bool = False


@dataclass(frozen=True, eq=False)
class Rows(Generic[S]):
    """One kind of rows in a snapshot.

    Attributes:
        what: its name.
        captured: returns the rows as of the call; they may be built later, from copies.
        take: adds rows of a snapshot to the part. May raise ValueError, TypeError, KeyError.
    """

    what: str
    captured: Callable[[S], Iterator[object]]
    take: Callable[[S, list[Any]], None]


def mapping_rows(what: str, of: Callable[[S], dict[str, V]], value: Callable[[Any], V]) -> Rows[S]:
    """Make rows of a dictionary in a part: each is a name and a value, which `value` reads back."""

    def captured(part: S) -> Iterator[object]:
        rows = list(of(part).items())
        return map(list, rows)

    def take(part: S, rows: list[Any]) -> None:
        of(part).update((str(name), value(one)) for name, one in rows)

    return Rows(what, captured, take)


def _untouched(_part: object, _deletion: Deletion) -> None:
    """Default of a part that stores nothing about topics or groups."""


def _not_told(_part: object, _topic: str) -> None:
    """Default of a part that does not need to know of new topics."""


def _nothing(_part: object) -> None:
    """Default of a part without files, or that needs no message."""


@dataclass(frozen=True, eq=False)
class StatePart(Generic[S]):
    """One feature's part of the state, a dataclass. Only the fold changes it.

    Attributes:
        make: makes the part of an empty log.
        blank: makes the part to which a snapshot adds rows; `make` when None.
        make_in: replaces `make` for a part with files: takes their folder, or None to keep
            everything in memory.
        numbers: whole-number attributes, which snapshots hold by these names.
        rows: the other contents of a snapshot.
        topic_made: called when a topic is created.
        needed_from: returns the log position of the first message that the part needs; retention
            keeps it.
    """

    name: str
    make: Callable[[], S]
    blank: Callable[[], S] | None = None
    make_in: Callable[[str | None], S] | None = None
    close: Callable[[S], None] = _nothing
    numbers: tuple[str, ...] = ()
    rows: tuple[Rows[S], ...] = ()
    topic_made: Callable[[S, str], None] = _not_told
    topic_deleted: Callable[[S, Deletion], None] = _untouched
    group_deleted: Callable[[S, Deletion], None] = _untouched
    needed_from: Callable[[S], int | None] = _nothing

    def made(self, folder: str | None, *, is_blank: bool) -> S:
        """Make the part of an empty log, or the one that a snapshot fills. Raises DiskFailed."""
        if self.make_in is not None:
            return self.make_in(folder)
        return ((is_blank and self.blank) or self.make)()


@dataclass(frozen=True, eq=False)
class CommandType(Generic[C]):
    """How one kind of command is read and folded.

    Attributes:
        command: the class of its values, whose fields define how they are written.
        fold: changes the state; may refuse the entry. Deterministic, and never raises.
        is_attached: whether it follows a record. Then `fold` is called when the record fits its
            queue but is not indexed yet, and a refusal of the command refuses the record as well.
            Leaders propose no command that would be refused.
    """

    command: type[C]
    fold: Callable[[BrokerState, Folded, C, Entry], EntryRefused | None]
    is_attached: bool = False

    @cached_property
    def name(self) -> str:
        """The name in tools: the words of the class, unless the class has another in `told`."""
        words = " ".join(re.findall("[A-Z][a-z]*", self.command.__name__)).lower()
        return getattr(self.command, "told", words)

    @cached_property
    def layout(self) -> CommandLayout[C]:
        return layout_of(self.command)


class FoldsRecords(Protocol):
    """Folds the message records of one state."""

    def __call__(self, state: BrokerState, folded: Folded, entry: Entry, /) -> EntryRefused | None:
        """Index the messages of an entry, or refuse it."""

    def pass_over(self, entry: Entry) -> None:
        """Note that an entry with records was refused."""


class Registry:
    """All commands, all parts of the state, and the fold of message records.

    Args:
        records: returns the fold of a state's records, given the state.

    Raises FeatureClash: two features claim the same number or name.
    """

    def __init__(
        self,
        commands: Iterable[CommandType[Any]],
        parts: Iterable[StatePart[Any]],
        records: Callable[[BrokerState], FoldsRecords],
    ) -> None:
        self.records = records
        self._types: dict[int, CommandType[Any]] = {}
        for one in commands:
            add_once(self._types, one.command.kind, one, "commands of kind")
        by_name: dict[str, StatePart[Any]] = {}
        self.rows: dict[str, StatePart[Any]] = {}
        self.numbers: dict[str, StatePart[Any]] = {}
        for part in parts:
            add_once(by_name, part.name, part, "parts of the state called")
            for rows in part.rows:
                add_once(self.rows, rows.what, part, "snapshot rows of")
            for name in part.numbers:
                add_once(self.numbers, name, part, "snapshot numbers called")
        self.parts = tuple(by_name.values())

    def commands(self) -> Iterable[CommandType[Any]]:
        return self._types.values()

    def type_of(self, command: LogCommand) -> CommandType[Any]:
        return self._types[command.kind]

    def decode(self, body: bytes) -> LogCommand:
        """Read a command.

        Raises:
            CommandMalformed: it is not a command.
            EntryTooNew: this program does not know its format version or its kind.
        """
        version, kind, members = read_log_command(body)
        found = self._types.get(kind)
        if found is None or version < found.layout.since:
            raise EntryTooNew(version, kind)
        try:
            command: LogCommand = found.layout.read(version, members)
        except (TypeError, ValueError, KeyError) as error:
            raise CommandMalformed(f"its members do not fit kind {kind}: {error}") from None
        return command

    def fold(
        self,
        state: BrokerState,
        folded: Folded,
        entry: Entry,
        body: bytes,
        *,
        is_attached: bool,
    ) -> EntryRefused | None:
        """Carry out the command in `body`, all or the end of `entry`. Raises EntryTooNew."""
        try:
            command = self.decode(body)
        except CommandMalformed as error:
            return EntryRefused(error.reason)
        except EntryTooNew as error:
            error.index = entry.index
            raise
        found = self.type_of(command)
        if found.is_attached is not is_attached:
            where = "alone" if found.is_attached else "behind a record"
            return EntryRefused(f"a command of kind {command.kind} stands {where}")
        return found.fold(state, folded, command, entry)


def add_once(table: dict[K, V], key: K, value: V, what: str) -> None:
    """Add a value under an unused key. Raises FeatureClash; `what` names the kind of key."""
    if key in table:
        raise FeatureClash(f"two features have {what} {key!r}")
    table[key] = value


class BrokerState:
    """The folded log. Only `broker.log.fold` changes it.

    Args:
        blank: whether a snapshot fills it.

    Attributes:
        folder: for the files of parts; None keeps everything in memory.
        fold_record: folds the records of an entry.
        log_end: position of the byte after the last entry.
        refused_entries: how many entries were skipped because no broker can have written them.
    """

    def __init__(
        self, registry: Registry, *, blank: bool = False, folder: str | None = None
    ) -> None:
        self.registry = registry
        self.folder = folder
        self.log_end = 0
        self.refused_entries = 0
        self._parts: dict[StatePart[Any], Any] = {
            part: part.made(folder, is_blank=blank) for part in registry.parts
        }
        self.fold_record = registry.records(self)

    def __getitem__(self, part: StatePart[S]) -> S:
        """Return a part; never replaced by another object."""
        found: S = self._parts[part]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerState) and (
            (self.log_end, self.refused_entries, self._parts)
            == (other.log_end, other.refused_entries, other._parts)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = {part.name: value for part, value in self._parts.items()}
        return f"BrokerState(log_end={self.log_end}, {parts})"

    def become(self, other: BrokerState) -> None:
        """Take over the parts of another state, which nothing else may use."""
        self.log_end, self.refused_entries = other.log_end, other.refused_entries
        for part, mine in self._parts.items():
            part.close(mine)
            for one in fields(mine):
                setattr(mine, one.name, getattr(other[part], one.name))

    def needed_from(self) -> int | None:
        """Return the log position of the first message that a part needs; None if no part needs
        messages.
        """
        needed = [part.needed_from(value) for part, value in self._parts.items()]
        return min([at for at in needed if at is not None], default=None)

    def close(self) -> None:
        """Close the files of all parts."""
        for part, value in self._parts.items():
            part.close(value)

    def topic_made(self, topic: str) -> None:
        for part, value in self._parts.items():
            part.topic_made(value, topic)

    def topic_deleted(self, deletion: Deletion) -> None:
        for part, value in self._parts.items():
            part.topic_deleted(value, deletion)

    def group_deleted(self, deletion: Deletion) -> None:
        for part, value in self._parts.items():
            part.group_deleted(value, deletion)
