"""Appends that wait for a turn, and how much of them one turn takes. Pure.

A turn encodes, sums and writes what it takes in one step, and the loop does nothing else meanwhile.
So it takes a slice. A submission that is larger than a slice is appended in parts, over several
turns, and answered once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from dledger.entry import Body, body_bytes
from dledger.errors import (
    AppendCutShort,
    Discarded,
    DLedgerError,
    LeadershipLost,
    NodeClosed,
    NodeClosing,
    NotLeader,
    Rejected,
)
from dledger.node_end import NodeEnd
from dledger.waits.pending_appends import Appended, Done, Outcome

# The most that a turn appends. An entry costs about 4 us on the leader and a MiB 3 ms, so a slice
# holds the loop for some 15 ms; larger ones make no append quicker, as each has a sync of its own.
SLICE_ENTRIES: Final = 2048
SLICE_BYTES: Final = 2 * 1024 * 1024

# Bodies to append next to each other, their size in bytes, and the callback for the outcome. A
# plain tuple, because there may be a hundred thousand of them a second.
Submission = tuple[Sequence[Body], int, Done]


class _Parts:
    """A submission that is appended in parts: it is answered once, with all entries or an error.

    Attributes:
        begun: the first entry of the first part, and its term; None while none is in the log.
        failed: whether it was answered with an error, so that the rest must not be appended.
    """

    def __init__(self, entries: int, done: Done) -> None:
        self._entries = entries
        self._done = done
        self._appended: list[Appended] = []
        self.begun: tuple[int, int] | None = None
        self.failed = False

    def answer(self, outcome: Outcome) -> None:
        """Take the outcome of the next part in the log, or the error of any part."""
        if self.failed:
            return
        if isinstance(outcome, DLedgerError):
            self.failed = True
            self._done(self._whole_error(outcome))
            return
        self._appended += outcome
        if len(self._appended) == self._entries:
            self._done(self._appended)

    def _whole_error(self, error: DLedgerError) -> DLedgerError:
        """Return the error of the whole submission, given the error of a part."""
        if self.begun is None:
            return error
        first, term = self.begun
        if isinstance(error, NodeClosing):
            return NodeEnd(error.__cause__).closed(first)
        if isinstance(error, Rejected) and not isinstance(error, NotLeader):
            return AppendCutShort(first, term, str(error))
        first_part = isinstance(error, Discarded) and error.index == first
        if first_part or isinstance(error, NodeClosed):
            return error
        return LeadershipLost(first, term, getattr(error, "leader", None))


class _Rest(NamedTuple):
    parts: _Parts
    bodies: Sequence[Body]  # of the whole submission
    begin: int  # the first body that is not in the log
    body_bytes: int  # the size of the bodies from there on


class Submissions:
    """The submissions of one member that no turn has taken, in their order.

    Attributes:
        waiting: the submissions; the first one stays until all of it is in the log. Read-only.
        entries, body_bytes: how much waits.
    """

    __slots__ = ("_rest", "body_bytes", "entries", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Submission] = deque()
        self._rest: _Rest | None = None  # of the first one, if it is appended in parts
        self.entries = 0
        self.body_bytes = 0

    @property
    def is_one_entry(self) -> bool:
        return self.entries == len(self.waiting) == 1

    def add(self, bodies: Sequence[Body], body_bytes: int, done: Done) -> None:
        self.waiting.append((bodies, body_bytes, done))
        self.entries += len(bodies)
        self.body_bytes += body_bytes

    def slice(self) -> list[Submission]:
        """Return the submissions that the next turn may append: whole ones, or a part of the first
        one.

        They stay here until `took`.
        """
        if self._rest is None and self.entries <= SLICE_ENTRIES and self.body_bytes <= SLICE_BYTES:
            return list(self.waiting)
        if self._rest is not None:
            return [self._part()]
        taken = list(islice(self.waiting, SLICE_ENTRIES))
        if _entries_of(taken) > SLICE_ENTRIES or _bytes_of(taken) > SLICE_BYTES:
            taken = taken[: _fitting(taken)]
        return taken or [self._part()]

    def _part(self) -> Submission:
        """Return the next part of the first submission, with at least one entry."""
        rest = self._rest
        if rest is None:
            bodies, size, done = self.waiting[0]
            rest = self._rest = _Rest(_Parts(len(bodies), done), bodies, 0, size)
        end, size = rest.begin, 0
        last = min(len(rest.bodies), rest.begin + SLICE_ENTRIES)
        while end < last:
            length = body_bytes(rest.bodies[end])
            if size and size + length > SLICE_BYTES:
                break
            size += length
            end += 1
        return rest.bodies[rest.begin : end], min(size, rest.body_bytes), rest.parts.answer

    def took(self, slice_: Sequence[Submission], first: int, term: int) -> None:
        """Note that a slice is in the log, from `first` on."""
        rest = self._rest
        if rest is None and len(slice_) == len(self.waiting):
            self.waiting.clear()
            self.entries = self.body_bytes = 0
            return
        entries, size = _entries_of(slice_), _bytes_of(slice_)
        self.entries -= entries
        self.body_bytes -= size
        if rest is None:
            for _ in slice_:
                self.waiting.popleft()
            return
        rest.parts.begun = rest.parts.begun or (first, term)
        end = rest.begin + entries
        self._rest = rest._replace(begin=end, body_bytes=rest.body_bytes - size)
        if end == len(rest.bodies):
            self._forget_rest(self._rest)

    def drop_failed(self, term: int) -> None:
        """Drop the rest of a submission of which a part failed, or is of another term."""
        if (rest := self._rest) is None or (begun := rest.parts.begun) is None:
            return
        if begun[1] != term:
            rest.parts.answer(LeadershipLost(*begun, None))
        if rest.parts.failed:
            self._forget_rest(rest)

    def take_all(self) -> list[Done]:
        """Forget all submissions; return the callbacks for their outcomes."""
        answers = [done for _, _, done in self.waiting]
        if (rest := self._rest) is not None:
            answers[0] = rest.parts.answer
            self._rest = None
        self.waiting.clear()
        self.entries = self.body_bytes = 0
        return answers

    def _forget_rest(self, rest: _Rest) -> None:
        self._rest = None
        self.waiting.popleft()
        self.entries -= len(rest.bodies) - rest.begin
        self.body_bytes -= rest.body_bytes


# Sums over thousands of submissions, in each turn of a busy leader.
_bodies_of, _size_of = itemgetter(0), itemgetter(1)


def _entries_of(submissions: Sequence[Submission]) -> int:
    return sum(map(len, map(_bodies_of, submissions)))


def _bytes_of(submissions: Sequence[Submission]) -> int:
    return sum(map(_size_of, submissions))


def _fitting(submissions: Sequence[Submission]) -> int:
    """Return how many of the first submissions fit into a slice."""
    entries = size = 0
    for count, (bodies, length, _) in enumerate(submissions):
        entries += len(bodies)
        size += length
        if entries > SLICE_ENTRIES or size > SLICE_BYTES:
            return count
    return len(submissions)
