"""What the application puts on top of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dledger.entry import Entry


class StateMachine(Protocol):
    """Folds committed entries into a state, the same on every member."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply a run of committed entries in log order; one result for each.

        Called in the node's trio thread, and again from the log's beginning after a restart, or
        from behind the newest snapshot (or, see `keeps_nothing`, from behind what was committed).
        Must be deterministic: no clock, no randomness, no input but the entries. It must not raise:
        what an entry asks for and cannot be done is a result, the same on every member. Raising
        stops the node (MachineFailed).
        """
        ...


@runtime_checkable
class SnapshottingMachine(StateMachine, Protocol):
    """A state machine whose state can be saved, so that the log need not be kept for ever.

    It may have an attribute `snapshot_format`, a name like "counter/2". A snapshot of another
    name is not given to `restore`; without the attribute the name is empty.
    """

    def snapshot(self) -> Iterable[bytes]:
        """The state as of now, in chunks of at most 16 MiB.

        Called in the node's trio thread between two applies, so it must be quick: take hold of
        the state (copy the dict, say), and do the rest in the iterator. That one is run through
        in another thread while entries are applied, and must not see what they change. A
        generator function runs nothing before its first chunk is asked for: take hold of the
        state outside of it.
        """
        ...

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the whole state by that of a snapshot; the chunks are those `snapshot` gave.

        Called before any apply, in another thread. Raising stops the node (RestoreFailed).
        """
        ...


@runtime_checkable
class RetainingMachine(StateMachine, Protocol):
    """A state machine that decides, by what is in the log, how much of the log is kept."""

    def log_kept_from(self) -> int:
        """The first entry that has to stay in the log; 0 keeps it all.

        A fold of the applied entries, like the rest of the state: so all members drop the same.
        Called in the node's trio thread a few times a second, not for each entry: return a number
        that `apply` has left there. A smaller number than before changes nothing.

        With `snapshot` and `restore` the number is part of what they save, and entries that no
        snapshot stands for stay, whatever it says. Without them the machine is started with the
        entries that are left: it may name an entry only if those from there on, or from any
        earlier one on, make the state that it wants to have.
        """
        ...


def snapshot_format(machine: SnapshottingMachine) -> str:
    """The name that the machine gave the format of its snapshots."""
    return str(getattr(machine, "snapshot_format", ""))


def keeps_nothing(machine: StateMachine) -> bool:
    """Whether the machine has no state, so that a restart need not read the log to make it again.

    A machine's class says so itself, by an attribute `keeps_nothing` that is true. One that it
    inherits along with an `apply` that it replaces does not count: that one may well keep
    something.
    """
    for kind in type(machine).__mro__:
        if "keeps_nothing" in vars(kind):
            return bool(vars(kind)["keeps_nothing"])
        if "apply" in vars(kind):
            return False
    return False


class LogOnly:
    """A state machine without a state, for applications that want nothing but the log."""

    keeps_nothing = True

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """No result for any entry."""
        return [None] * len(entries)
