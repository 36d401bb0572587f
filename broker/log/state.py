"""The folded log, and what features add to it: kinds of commands, and parts of the state.

A feature folder has its commands and its parts; nothing else names them. A number or a name that
two features claim is an error when the program starts. Each feature finds its part by the
`StatePart` that it has defined: `state[OFFSETS].committed(...)`. Equal logs, equal states.
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
    """A topic or a consumer group was deleted.

    Attributes:
        name: of what was deleted.
        with_offsets: whether its committed offsets go.
        with_locks: whether its locks go; entries before version 3 kept them.
        keeps_ends: whether it is remembered where the queues of a topic ended; entries before
            version 6 did not.
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
        captured: the rows as they are at the call; they may be made later, from copies.
        take: puts rows of a snapshot into the part. May raise ValueError, TypeError, KeyError.
    """

    what: str
    captured: Callable[[S], Iterator[object]]
    take: Callable[[S, list[Any]], None]


def mapping_rows(what: str, of: Callable[[S], dict[str, V]], value: Callable[[Any], V]) -> Rows[S]:
    """Rows of a dictionary of a part: each is a name, and what `value` makes its value of."""

    def captured(part: S) -> Iterator[object]:
        rows = list(of(part).items())
        return map(list, rows)

    def take(part: S, rows: list[Any]) -> None:
        of(part).update((str(name), value(one)) for name, one in rows)

    return Rows(what, captured, take)


def _untouched(_part: object, _deletion: Deletion) -> None:
    """Stands for a part that has nothing of a topic or a group."""


def _not_told(_part: object, _topic: str) -> None:
    """Stands for a part that has nothing of a topic before its first message."""


def _nothing(_part: object) -> None:
    """Stands for a part that has nothing on disk, or needs no message."""


@dataclass(frozen=True, eq=False)
class StatePart(Generic[S]):
    """One feature's part of the state, a dataclass. Only folds change it.

    Attributes:
        name: of the part.
        make: the part of an empty log.
        blank: the part to which a snapshot adds rows; `make` when None.
        make_in: for a part that keeps much of itself on disk, instead of `make`: given the folder
            for it, or None to keep it in memory.
        close: lets go of what the part has on disk.
        numbers: attributes that are whole numbers, and stand in snapshots by these names.
        rows: what else a snapshot has of it.
        topic_made: a topic is there that was not.
        topic_deleted: lets go of what belongs to a topic.
        group_deleted: lets go of what belongs to a consumer group.
        needed_from: where the first message lies that the part has use for; retention keeps it.
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
        """The part of an empty log, or the one that a snapshot fills. Raises DiskFailed."""
        if self.make_in is not None:
            return self.make_in(folder)
        return ((is_blank and self.blank) or self.make)()


@dataclass(frozen=True, eq=False)
class CommandType(Generic[C]):
    """How one kind of command is read and folded.

    Attributes:
        command: the class of its values. It says by its fields how they are written.
        fold: changes the state; may refuse the entry. Deterministic, and never raises.
        is_attached: whether it stands behind a record. Then `fold` is called when the record fits
            its queue and is not indexed yet, and refuses the record when it refuses the command.
            Leaders propose none that would be refused.
    """

    command: type[C]
    fold: Callable[[BrokerState, Folded, C, Entry], EntryRefused | None]
    is_attached: bool = False

    @cached_property
    def name(self) -> str:
        """What people call it: the words of its class, unless that says otherwise."""
        words = " ".join(re.findall("[A-Z][a-z]*", self.command.__name__)).lower()
        return getattr(self.command, "told", words)

    @cached_property
    def layout(self) -> CommandLayout[C]:
        """How it is written."""
        return layout_of(self.command)


class FoldsRecords(Protocol):
    """Folds the message records of one run of entries; made anew for each run."""

    def __call__(self, entry: Entry, /) -> EntryRefused | None:
        """Index one message, or refuse it."""
        ...

    def pass_over(self, entry: Entry) -> None:
        """Note that an entry with records was refused."""
        ...


class Registry:
    """All commands, all parts of the state, and the fold of message records.

    Args:
        commands: of all features.
        parts: of all features.
        records: begins to fold the records of one run of entries.

    Raises:
        FeatureClash: two have the same number or name.
    """

    def __init__(
        self,
        commands: Iterable[CommandType[Any]],
        parts: Iterable[StatePart[Any]],
        records: Callable[[BrokerState, Folded], FoldsRecords],
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
        """All kinds of commands."""
        return self._types.values()

    def type_of(self, command: LogCommand) -> CommandType[Any]:
        """How a command is folded."""
        return self._types[command.kind]

    def decode(self, body: bytes) -> LogCommand:
        """Read a command.

        Raises:
            CommandMalformed: it is none.
            EntryTooNew: it is of a format version or a kind that this program does not know.
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
        """Carry out a command.

        Args:
            state: the state so far.
            folded: the effects so far.
            entry: the entry that has the command.
            body: the command.
            is_attached: whether it stands behind a record.

        Raises:
            EntryTooNew: see `decode`.
        """
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
    """Put a value under a key that must be free. Raises FeatureClash: `what` names the key."""
    if key in table:
        raise FeatureClash(f"two features have {what} {key!r}")
    table[key] = value


class BrokerState:
    """The folded log. Only `broker.log.fold` changes it.

    Args:
        registry: the features whose parts it has.
        blank: whether a snapshot fills it.
        folder: for what parts keep on disk; None keeps all in memory.

    Attributes:
        registry: the features whose parts it has.
        folder: for what parts keep on disk.
        log_end: position of the byte behind the last entry.
        refused_entries: how many entries were passed over, because no broker can have written them.
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

    def __getitem__(self, part: StatePart[S]) -> S:
        """A part; the same object for ever."""
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
        """Take over all of another state, which has no other owner."""
        self.log_end, self.refused_entries = other.log_end, other.refused_entries
        for part, mine in self._parts.items():
            part.close(mine)
            for one in fields(mine):
                setattr(mine, one.name, getattr(other[part], one.name))

    def needed_from(self) -> int | None:
        """Where the first message lies that some part has use for; None: no part needs any."""
        needed = [part.needed_from(value) for part, value in self._parts.items()]
        return min([at for at in needed if at is not None], default=None)

    def close(self) -> None:
        """Let go of what is on disk."""
        for part, value in self._parts.items():
            part.close(value)

    def topic_made(self, topic: str) -> None:
        """Tell all parts that a topic is there that was not."""
        for part, value in self._parts.items():
            part.topic_made(value, topic)

    def topic_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a topic."""
        for part, value in self._parts.items():
            part.topic_deleted(value, deletion)

    def group_deleted(self, deletion: Deletion) -> None:
        """Let all parts forget what belongs to a consumer group."""
        for part, value in self._parts.items():
            part.group_deleted(value, deletion)
