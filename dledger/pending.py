"""Appends that wait to be committed and applied. One deque, woken by watermark, in log order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.entry import Entry
from dledger.errors import DLedgerError


class Appended(NamedTuple):
    """Where an entry lies, and what the state machine made of it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    result: object


Outcome = list[Appended] | DLedgerError
Done = Callable[[Outcome], None]


class _Submission:
    __slots__ = ("appended", "body_bytes", "done", "first", "last", "term")

    def __init__(self, first: int, last: int, term: int, body_bytes: int, done: Done) -> None:
        self.first = first
        self.last = last
        self.term = term
        self.body_bytes = body_bytes
        self.done = done
        self.appended: list[Appended] = []


class PendingAppends:
    """The leader's open submissions, in the order of their entries."""

    __slots__ = ("_submissions", "body_bytes", "entries")

    def __init__(self) -> None:
        self._submissions: deque[_Submission] = deque()
        self.entries = 0
        self.body_bytes = 0

    def add(self, first: int, last: int, term: int, body_bytes: int, done: Done) -> None:
        """Entries first..last were appended; `done` is called once with what became of them."""
        self._submissions.append(_Submission(first, last, term, body_bytes, done))
        self.entries += last - first + 1
        self.body_bytes += body_bytes

    def applied(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """A run of entries was applied: answer the submissions that are complete with it."""
        if not self._submissions or not entries:
            return
        chunk_first, chunk_last = entries[0].index, entries[-1].index
        while self._submissions:
            submission = self._submissions[0]
            if submission.first > chunk_last:
                return
            begin = max(submission.first, chunk_first) - chunk_first
            end = min(submission.last, chunk_last) - chunk_first + 1
            submission.appended += [
                Appended(entry.index, entry.term, entry.pos, result)
                for entry, result in zip(entries[begin:end], results[begin:end], strict=True)
            ]
            if submission.last > chunk_last:
                return
            self._forget(self._submissions.popleft())
            submission.done(submission.appended)

    def fail_after(self, index: int, error: Callable[[int, int], DLedgerError]) -> None:
        """Answer every submission that ends behind `index` with `error(first, term)`."""
        kept: deque[_Submission] = deque()
        failed: list[_Submission] = []
        for submission in self._submissions:
            (failed if submission.last > index else kept).append(submission)
        self._submissions = kept
        for submission in failed:
            self._forget(submission)
            submission.done(error(submission.first, submission.term))

    def _forget(self, submission: _Submission) -> None:
        self.entries -= submission.last - submission.first + 1
        self.body_bytes -= submission.body_bytes
