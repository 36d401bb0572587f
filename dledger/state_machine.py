"""The interface of the application's state machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dledger.entry import Entry


class StateMachine(Protocol):
    """Folds committed entries into a state, the same on every member.

    It may have two attributes that members tell one another. `machine_name` names the kind of
    entries, like "counter": members whose machines have different names refuse one another.
    `machine_version` is the newest version of entries that it reads, from 1 on; the oldest one
    among the members is in `Status.machine_version`. Write entries of a newer version only once
    all members read it.
    """

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply a run of committed entries in log order; return one result for each.

        Called in the node's trio thread. After a restart it is called again from the log's
        beginning, or from the first entry after the newest snapshot (or, see `keeps_nothing`, after
        the recorded commit index). It must be deterministic: no clock, no randomness, no input but
        the entries. It must not raise, which would stop the node (MachineFailed): return a result,
        the same on every member, if an entry's request cannot be carried out. It may raise only
        MachineTooOld, for an entry that a later version of the machine reads.
        """
        ...


@runtime_checkable
class SnapshottingMachine(StateMachine, Protocol):
    """A state machine whose state can be saved, so that the log need not be kept for ever.

    It may have an attribute `snapshot_format`, a name like "counter/2". A snapshot with another
    name is not passed to `restore`; without the attribute the name is empty.
    """

    def snapshot(self) -> Iterable[bytes]:
        """Return the present state, in chunks of at most 16 MiB.

        Called in the node's trio thread between two applies, so it must be quick: capture the
        state (copy the dict, say), and do the rest in the iterator. The iterator runs in another
        thread while entries are applied, and must not see their changes. A generator function
        runs nothing before its first chunk is requested: capture the state outside it.
        """
        ...

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the whole state by that of a snapshot; `chunks` are those of `snapshot`.

        Called before any apply, in another thread. Raising stops the node (RestoreFailed).
        """
        ...


@runtime_checkable
class RetainingMachine(StateMachine, Protocol):
    """A state machine that decides, by the log's entries, how much of the log is kept."""

    def log_kept_from(self) -> int:
        """Return the first entry that has to stay in the log; 0 keeps all of it.

        Like the rest of the state it depends only on the applied entries, so that all members drop
        the same ones. Called in the node's trio thread a few times a second, not for each entry:
        return a number that `apply` has stored. A smaller number than before changes nothing.

        With `snapshot` and `restore` the number is part of the saved state, and entries that no
        snapshot replaces stay in any case. Without them the machine starts with the kept entries:
        it may name an entry only if the entries from there on, or from any earlier one on, produce
        the state that it needs.
        """
        ...


def snapshot_format(machine: SnapshottingMachine) -> str:
    return str(getattr(machine, "snapshot_format", ""))


def keeps_nothing(machine: StateMachine) -> bool:
    """Return whether the machine has no state, so that a restart need not read the log.

    A machine's class declares it by a true attribute `keeps_nothing`. An inherited attribute does
    not count if the class replaces the inherited `apply`, because the new one may keep a state.
    """
    for kind in type(machine).__mro__:
        if "keeps_nothing" in vars(kind):
            return bool(vars(kind)["keeps_nothing"])
        if "apply" in vars(kind):
            return False
    return False


class LogOnly:
    """A state machine without a state, for applications that need only the log."""

    keeps_nothing = True
    machine_name = "log"

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Return None for each entry."""
        return [None] * len(entries)
