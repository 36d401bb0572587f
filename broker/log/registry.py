"""What features add to the log: kinds of commands, and parts of the state.

A feature folder has its commands and its parts; nothing else names them. A number or a name that
two features claim is an error when the program starts.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from broker.errors import CommandMalformed, EntryTooNew, FeatureClash
from broker.log.command_layout import CommandLayout, LogCommand, layout_of
from broker.log.entry import read_log_command
from broker.log.folded import EntryRefused
from dledger import Entry

if TYPE_CHECKING:
    from broker.log.folded import Folded
    from broker.log.state import BrokerState, StatePart

C = TypeVar("C", bound=LogCommand)


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
    fold: Callable[["BrokerState", "Folded", C, Entry], "EntryRefused | None"]
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

    def __call__(self, entry: Entry, /) -> "EntryRefused | None":
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
        parts: Iterable["StatePart[Any]"],
        records: Callable[["BrokerState", "Folded"], FoldsRecords],
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
        state: "BrokerState",
        folded: "Folded",
        entry: Entry,
        body: bytes,
        *,
        is_attached: bool,
    ) -> "EntryRefused | None":
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


K = TypeVar("K")
V = TypeVar("V")


def add_once(table: dict[K, V], key: K, value: V, what: str) -> None:
    """Put a value under a key that must be free. Raises FeatureClash: `what` names the key."""
    if key in table:
        raise FeatureClash(f"two features have {what} {key!r}")
    table[key] = value
