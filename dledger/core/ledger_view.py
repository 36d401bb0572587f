"""The log as the core sees it: where it begins and ends, and which term each index has.

Terms never decrease along a log, so a list of runs (term, first index) describes it completely. The
core counts, the store carries: no body ever passes through here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import InvariantBroken


class TermRun(NamedTuple):
    """Entries from `first_index` on have this term, until the next run begins."""

    term: int
    first_index: int


class LedgerView:
    """Indexes and terms of one node's log. Mirrors the store, entry for entry.

    Attributes:
        before_begin, before_begin_term: the entry before the first one.
        last_index, last_term: the last entry, or the one before the first if the log is empty.
    """

    __slots__ = (
        "_firsts",
        "_terms",
        "before_begin",
        "before_begin_term",
        "last_index",
        "last_term",
    )

    def __init__(
        self,
        runs: Iterable[TermRun] = (),
        *,
        last_index: int = BEFORE_FIRST_INDEX,
        before_begin: int = BEFORE_FIRST_INDEX,
        before_begin_term: int = NO_TERM,
    ) -> None:
        self._terms: list[int] = []
        self._firsts: list[int] = []
        for run in runs:
            self._terms.append(run.term)
            self._firsts.append(run.first_index)
        self.before_begin = before_begin
        self.before_begin_term = before_begin_term
        self.last_index = last_index
        self._note_last_term()

    def _note_last_term(self) -> None:
        self.last_term = self._terms[-1] if self._terms else self.before_begin_term

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`; NO_TERM outside the log."""
        if index == self.last_index:
            return self.last_term
        if index == self.before_begin:
            return self.before_begin_term
        if index < self.before_begin or index > self.last_index:
            return NO_TERM
        return self._terms[bisect_right(self._firsts, index) - 1]

    def run_end(self, index: int) -> int:
        """Return the last index of the run of equal terms that contains `index`."""
        at = bisect_right(self._firsts, index)
        return self._firsts[at] - 1 if at < len(self._firsts) else self.last_index

    def last_index_with_term_at_most(self, term: int, limit: int) -> int:
        """Return the highest index not above `limit` whose term is not above `term`."""
        at = bisect_right(self._terms, term)
        if at < len(self._firsts):
            limit = min(limit, self._firsts[at] - 1)
        return max(min(limit, self.last_index), self.before_begin)

    def runs(self, first: int, last: int) -> tuple[TermRun, ...]:
        """Return the runs that cover first..last; the first one begins at `first`."""
        if first > last:
            return ()
        if self._firsts and self._firsts[-1] <= first:
            return (TermRun(self._terms[-1], first),)
        found = []
        at = bisect_right(self._firsts, first) - 1
        start = first
        while at < len(self._terms) and start <= last:
            found.append(TermRun(self._terms[at], start))
            at += 1
            start = self._firsts[at] if at < len(self._firsts) else last + 1
        return tuple(found)

    def extend(self, term: int, count: int) -> int:
        """Add `count` entries of `term` at the end; return the index of the first of them.

        Raises InvariantBroken if `term` is lower than that of the last entry.
        """
        if term < self.last_term:
            raise InvariantBroken(f"entry of term {term} after one of term {self.last_term}")
        first = self.last_index + 1
        if term != self.last_term or not self._terms:
            self._terms.append(term)
            self._firsts.append(first)
            self.last_term = term
        self.last_index += count
        return first

    def discard_before(self, first_index: int) -> None:
        """Forget every entry before `first_index`: the log begins there from now on.

        Raises InvariantBroken if the log ends before `first_index`: this never empties a log.
        """
        if first_index <= self.before_begin + 1:
            return
        if first_index > self.last_index:
            raise InvariantBroken(
                f"begin at {first_index}, behind the last entry {self.last_index}"
            )
        self.before_begin_term = self.term_at(first_index - 1)
        self.before_begin = first_index - 1
        passed = bisect_right(self._firsts, first_index) - 1
        del self._firsts[:passed], self._terms[:passed]
        self._firsts[0] = first_index

    def restart(self, before_begin: int, before_begin_term: int) -> None:
        """Forget every entry: the log is empty, and begins right behind `before_begin`."""
        self._terms.clear()
        self._firsts.clear()
        self.before_begin = self.last_index = before_begin
        self.before_begin_term = self.last_term = before_begin_term

    def truncate_after(self, index: int) -> None:
        """Forget every entry behind `index`.

        Raises InvariantBroken if the log begins behind `index`.
        """
        if index < self.before_begin:
            raise InvariantBroken(f"cut at {index}, before the log's beginning {self.before_begin}")
        self.last_index = min(self.last_index, index)
        while self._firsts and self._firsts[-1] > self.last_index:
            self._firsts.pop()
            self._terms.pop()
        self._note_last_term()
