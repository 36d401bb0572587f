"""Appends that wait to be committed and applied. One deque, woken by watermark, in log order."""

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
        """Add the submission of entries first..last; `done` is called once with its outcome."""
        self._submissions.append(_Submission(first, last, term, body_bytes, done))
        self.entries += last - first + 1
        self.body_bytes += body_bytes

    def applied(self, run: EntryRun, results: Sequence[object]) -> None:
        """Answer the submissions that this run of applied entries completes."""
        submissions, make = self._submissions, tuple.__new__
        run_first, run_last, term, positions = run.first, run.last, run.term, run.positions
        while submissions:
            submission = submissions[0]
            first, last = submission.first, submission.last
            if first > run_last:
                return
            if submission.term != term:
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
                if submission.appended:
                    submission.appended += appended
                    appended = submission.appended
                if last > run_last:
                    submission.appended = appended
                    return
            submissions.popleft()
            self.entries -= last - first + 1
            self.body_bytes -= submission.body_bytes
            submission.done(appended)

    def end_leadership(
        self, committed: int, term_at: Callable[[int], int], leader: str | None
    ) -> None:
        """Answer the submissions of a leadership that ended.

        Committed ones still wait to be applied. Those that another leader's committed entries
        replaced are certainly lost. The outcome of the rest is unknown: an entry that was cut from
        this log may be in another member's.
        """

        def verdict(submission: _Submission) -> DLedgerError | None:
            first, last, term = submission.first, submission.last, submission.term
            if last > committed:
                return LeadershipLost(first, term, leader)
            # The last one first: retention may have dropped the others already.
            if term_at(last) == term:
                return None
            if not submission.appended and term_at(first) != term:
                return Discarded(first, term)
            return LeadershipLost(first, term, leader)

        self._answer_all(verdict)

    def never_applied(self, before: int, leader: str | None) -> None:
        """Answer the submissions of entries up to `before`, which a snapshot replaces, or before
        which the state machine has stopped.

        They are never applied here one by one, so their outcome is unknown.
        """
        self._answer_all(
            lambda open_: (
                LeadershipLost(open_.first, open_.term, leader) if open_.first <= before else None
            )
        )

    def close(self, end: NodeEnd) -> None:
        """Answer every submission with NodeClosing: the node stops."""
        self._answer_all(lambda submission: end.closed(submission.first))

    def _answer_all(self, verdict: Callable[[_Submission], DLedgerError | None]) -> None:
        """Answer each submission that `verdict` has an error for; keep the others."""
        submissions, self._submissions = self._submissions, deque()
        answers: list[tuple[Done, Outcome]] = []
        for submission in submissions:
            error = verdict(submission)
            if error is None:
                self._submissions.append(submission)
            else:
                self._forget(submission)
                answers.append((submission.done, error))
        answer_each(answers)

    def _forget(self, submission: _Submission) -> None:
        self.entries -= submission.last - submission.first + 1
        self.body_bytes -= submission.body_bytes
