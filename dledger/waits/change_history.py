"""The last changes that a state machine reported, and the watches that wait for the next one. Pure.

All members report the same changes of an entry, so "after entry 7" means the same on each of them.
Only the beginning of the history differs between members.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from dledger.changes import CHANGE_OVERHEAD_BYTES, MAX_ENTRY_CHANGES, Change, Changes, Path

# Changes that one call looks at, beside the rest of an entry: well below a millisecond.
SCAN_CHANGES: Final = 5_000


class Selected(NamedTuple):
    """Changes of a path, in whole entries.

    Attributes:
        rows: the changes, as `Change.row`.
        upto: the last entry that was searched: `rows` has all changes up to it.
        is_all: whether that was the last applied entry.
    """

    rows: Sequence[bytes]
    upto: int
    is_all: bool


class Waiting:
    """A watch that waits for a change of a path.

    Attributes:
        path: the path.
        wake: called once, when there may be a change.
        upto: the last entry that was applied before that.
    """

    __slots__ = ("path", "upto", "wake")

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        self.path = path
        self.wake = wake
        self.upto = -1


class ChangeHistory:
    """The changes after one entry, up to the last applied one.

    Args:
        changes: where the machine reports them.
        limit_bytes: memory for the kept changes, CHANGE_OVERHEAD_BYTES of each included.
        begin: the last entry that the machine's state includes already.

    Attributes:
        begin: the history has all changes after this entry.
        end: the last applied entry.
    """

    def __init__(self, changes: Changes, limit_bytes: int, begin: int) -> None:
        self.begin = self.end = begin
        self._told = changes
        self._limit_bytes = limit_bytes
        self._changes: list[Change] = []
        self._indexes: list[int] = []
        self._sums: list[int] = []  # bytes of all changes up to each
        self._waiting = _Waiters()
        changes.begin(limit_bytes)

    # --- reports of the machine ---------------------------------------------------------------

    def applied(self, last: int) -> str | None:
        """Take the changes of the entries up to `last`. Return the reason if there is a new gap."""
        changes, lost = self._told.take()
        before, self.end = self.end, last
        if not changes and lost is None:
            return None
        indexes = [change.index for change in changes]
        misplaced = _misplaced(
            indexes if lost is None else [lost.index, *indexes], before + 1, last
        )
        if misplaced is not None:
            self._begin_anew(last)
            return f"a change of entry {misplaced} among those of entries {before + 1} to {last}"
        if lost is not None:
            self._begin_anew(lost.index)
        self._keep(changes)
        self._waiting.told(changes, before)
        return None if lost is None else lost.problem

    def restored(self, index: int, changes: Changes | None) -> None:
        """Begin anew after the machine was restored from a snapshot.

        The history has no changes before `index`, not even those of entries that the machine had
        begun to apply. `changes` is where the machine reports from now on, if that has changed.
        """
        if changes is not None:
            self._told = changes
            changes.begin(self._limit_bytes)
        self.end = index
        self._begin_anew(index)

    def _begin_anew(self, index: int) -> None:
        self.begin = index
        self._changes, self._indexes, self._sums = [], [], []
        self._waiting.wake_all()

    def _keep(self, changes: Sequence[Change]) -> None:
        self._changes += changes
        self._indexes += [change.index for change in changes]
        sizes = [len(change.row) + CHANGE_OVERHEAD_BYTES for change in changes]
        kept = self._sums[-1] if self._sums else 0
        self._sums += list(accumulate(sizes, initial=kept))[1:]
        if self._sums and self._sums[-1] - self._dropped_bytes > self._limit_bytes:
            self._drop_oldest()

    @property
    def _dropped_bytes(self) -> int:
        return self._sums[0] - len(self._changes[0].row) - CHANGE_OVERHEAD_BYTES

    def _drop_oldest(self) -> None:
        """Drop whole entries, and a sixteenth more than needed, so that drops are rare."""
        until = self._sums[-1] - self._limit_bytes * 15 // 16
        last = min(bisect_left(self._sums, until), len(self._sums) - 1)
        self.begin = self._indexes[last]
        count = bisect_right(self._indexes, self.begin)
        for kept in (self._changes, self._indexes, self._sums):
            del kept[:count]

    # --- questions of watches -----------------------------------------------------------------

    def select(self, after: int, path: Path, max_bytes: int) -> Selected:
        """Return changes of a path after an entry: as many as fit, at least those of one entry.

        One call searches some thousand changes: continue after `upto`. `after` is at least `begin`.
        """
        at = bisect_right(self._indexes, after)
        rows: list[bytes] = []
        entry: list[bytes] = []  # rows of the entry at `index`
        size, upto, parts = 0, after, len(path)
        index = self._indexes[at] if at < len(self._indexes) else after
        looked_at = self._changes[at : at + SCAN_CHANGES + MAX_ENTRY_CHANGES]
        for number, change in enumerate(looked_at):
            if change.index != index:
                if rows and size > max_bytes:
                    return Selected(rows, upto, is_all=False)
                rows += entry
                entry, upto, index = [], index, change.index
                if number >= SCAN_CHANGES:
                    return Selected(rows, upto, is_all=False)
            theirs = change.path
            if theirs[:parts] == path or (change.gone and path[: len(theirs)] == theirs):
                entry.append(change.row)
                size += len(change.row)
        if rows and size > max_bytes:
            return Selected(rows, upto, is_all=False)
        return Selected(rows + entry, max(self.end, after), is_all=True)

    def wait(self, path: Path, wake: Callable[[], None]) -> Waiting:
        """Have `wake` called when a change of the path is reported, or the history begins anew."""
        waiting = Waiting(path, wake)
        self._waiting.add(waiting)
        return waiting

    def leave(self, waiting: Waiting) -> None:
        self._waiting.remove(waiting)

    def close(self) -> None:
        """Wake all watches: the node stops."""
        self._waiting.wake_all()


def _misplaced(indexes: Sequence[int], first: int, last: int) -> int | None:
    """Return the first index outside first..last, or after a greater one."""
    for index in indexes:
        if not first <= index <= last:
            return index
        first = index
    return None


class _Waiters:
    """Waiting watches, indexed by path, so that a change finds its watches without a scan."""

    def __init__(self) -> None:
        self._at: dict[Path, set[Waiting]] = {}  # by their path
        self._under: dict[Path, set[Waiting]] = {}  # by their path and each prefix of it

    def add(self, waiting: Waiting) -> None:
        path = waiting.path
        self._at.setdefault(path, set()).add(waiting)
        for parts in range(len(path) + 1):
            self._under.setdefault(path[:parts], set()).add(waiting)

    def remove(self, waiting: Waiting) -> None:
        path = waiting.path
        _discard(self._at, path, waiting)
        for parts in range(len(path) + 1):
            _discard(self._under, path[:parts], waiting)

    def told(self, changes: Sequence[Change], before: int) -> None:
        """Wake the watches that these changes concern. `before` is the entry before them."""
        if not self._at:
            return
        found: set[Waiting] = set()
        for _, path, _, gone in changes:
            for parts in range(len(path) + 1):
                if (here := self._at.get(path[:parts])) is not None:
                    found |= here
            if gone and (below := self._under.get(path)) is not None:
                found |= below
        for waiting in found:
            waiting.upto = before
            self.remove(waiting)
            waiting.wake()

    def wake_all(self) -> None:
        everyone = [waiting for here in self._at.values() for waiting in here]
        self._at, self._under = {}, {}
        for waiting in everyone:
            waiting.wake()


def _discard(table: dict[Path, set[Waiting]], path: Path, waiting: Waiting) -> None:
    if (here := table.get(path)) is not None:
        here.discard(waiting)
        if not here:
            del table[path]
