"""Appends that wait to be committed and applied: one deque in log order, answered by index."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from dledger.entry_run import EntryRun
from dledger.errors import (
    Discarded,
    DLedgerError,
    InvariantBroken,
    LeadershipLost,
)
from dledger.node_end import NodeEnd
from dledger.short_repr import short_repr


class Appended(NamedTuple):
    """The place of an appended entry, and the state machine's result."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    result: object

    def __repr__(self) -> str:
        return short_repr(self)


Outcome = list[Appended] | DLedgerError
Done = Callable[[Outcome], None]


def answer_each(answers: Iterable[tuple[Done, Outcome]]) -> None:
    """Call each `done` with its outcome. An exception of one is raised after all were called."""
    raised: Exception | None = None
    for done, answer in answers:
        try:
            done(answer)
        except Exception as error:
            raised = raised or error
    if raised is not None:
        raise raised


# The first and last entry of a submission, their term, the bytes of its bodies, and the callback
# for the outcome. A plain tuple: there may be a hundred thousand of them a second.
_Submission = tuple[int, int, int, int, Done]


class PendingAppends:
    """The leader's open submissions, in the order of their entries."""

    __slots__ = ("_begun", "_submissions", "body_bytes", "entries")

    def __init__(self) -> None:
        self._submissions: deque[_Submission] = deque()
        self._begun: list[Appended] = []  # the applied part of the first submission
        self.entries = 0
        self.body_bytes = 0

    def add(self, first: int, last: int, term: int, body_bytes: int, done: Done) -> None:
        self._submissions.append((first, last, term, body_bytes, done))
        self.entries += last - first + 1
        self.body_bytes += body_bytes

    def applied(self, run: EntryRun, results: Sequence[object]) -> None:
        submissions, make = self._submissions, tuple.__new__
        run_first, run_last, run_term, positions = run.first, run.last, run.term, run.positions
        while submissions:
            first, last, term, body_bytes, done = submissions[0]
            if first > run_last:
                return
            if term != run_term:
                raise InvariantBroken(f"entry {first} waits, another's was applied")
            begin = first - run_first
            # tuple.__new__ takes a third of the time of Appended(...).
            if first == last and begin >= 0:
                appended = [make(Appended, (first, term, positions[begin], results[begin]))]
            else:
                begin = max(begin, 0)
                end = min(last, run_last) + 1 - run_first
                indexes = range(run_first + begin, run_first + end)
                columns = positions[begin:end], results[begin:end]
                rows = zip(indexes, repeat(term), *columns, strict=False)
                appended = list(map(make, repeat(Appended), rows))
                if self._begun:
                    self._begun += appended
                    appended = self._begun
                if last > run_last:
                    self._begun = appended
                    return
                self._begun = []
            submissions.popleft()
            self.entries -= last - first + 1
            self.body_bytes -= body_bytes
            done(appended)

    def end_leadership(
        self, committed: int, term_at: Callable[[int], int], leader: str | None
    ) -> None:
        """Answer the submissions of a leadership that ended.

        Committed ones still wait to be applied. Submissions that another leader's committed entries
        replaced are certainly lost. The outcome of the rest is unknown: an entry that was cut from
        this log may be in another member's.
        """

        def verdict(submission: _Submission) -> DLedgerError | None:
            first, last, term, _, _ = submission
            if last > committed:
                return LeadershipLost(first, term, leader)
            # The last one first: retention may have dropped the others already.
            if term_at(last) == term:
                return None
            if not self._has_begun(first) and term_at(first) != term:
                return Discarded(first, term)
            return LeadershipLost(first, term, leader)

        self._answer_all(verdict)

    def never_applied(self, before: int, leader: str | None) -> None:
        """Answer the submissions of entries up to `before` with an unknown outcome.

        A snapshot replaces these entries, or the state machine has stopped before them, so they are
        never applied here one by one.
        """
        self._answer_all(
            lambda open_: LeadershipLost(open_[0], open_[2], leader) if open_[0] <= before else None
        )

    def close(self, end: NodeEnd) -> None:
        """Answer every submission with NodeClosing: the node stops."""
        self._answer_all(lambda submission: end.closed(submission[0]))

    def _answer_all(self, verdict: Callable[[_Submission], DLedgerError | None]) -> None:
        """Answer each submission for which `verdict` returns an error; keep the others."""
        submissions, self._submissions = self._submissions, deque()
        answers: list[tuple[Done, Outcome]] = []
        for submission in submissions:
            error = verdict(submission)
            if error is None:
                self._submissions.append(submission)
            else:
                answers.append((self._forget(submission), error))
        answer_each(answers)

    def _has_begun(self, first: int) -> bool:
        return bool(self._begun) and self._begun[0].index == first

    def _forget(self, submission: _Submission) -> Done:
        first, last, _, body_bytes, done = submission
        if self._has_begun(first):
            self._begun = []
        self.entries -= last - first + 1
        self.body_bytes -= body_bytes
        return done
