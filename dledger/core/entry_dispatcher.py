"""Leader side: brings one peer's log to equal the leader's, and keeps it so.

A dispatcher first COMPAREs (one probe in flight, backing off a whole term run at a time), has the
peer TRUNCATE what contradicts the leader, then streams APPENDs with a window of batches in flight,
and when nothing is left to stream tells the COMMIT index. Pure: time comes in, pushes come out.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Protocol

from dledger.core.ledger_view import LedgerView
from dledger.errors import InvariantBroken
from dledger.messages import Phase, PushRequest, PushResponse

# Batches on their way to one peer. A round trip with a sync takes about 1 ms and a batch is what
# one driver turn gathered, so a handful keeps the pipe full; the rest is room for a slow disk.
MAX_BATCHES_IN_FLIGHT = 16

# How long a push may stay without an answer before the peer is compared anew. Two heartbeats: a
# lost batch is found soon, and a slow sync rarely costs a needless probe.
ANSWER_TIMEOUT_S = 0.2

# The least time between two pushes that carry nothing but a commit index. Appends carry it for
# free; an idle peer learns it this late at most.
COMMIT_NOTICE_INTERVAL_S = 0.01


class PhaseEvent(Enum):
    """What can change a dispatcher's phase."""

    MATCHED = "the logs agree at the probe, and the peer's ends there"
    LONGER = "the logs agree at the probe, and the peer's goes on"
    MISMATCHED = "the logs differ at the push's foundation"
    CONFLICT = "an entry of the push contradicts one of the peer's"
    TRUNCATED = "the peer dropped what contradicted"
    CAUGHT_UP = "everything has been sent"
    NEW_ENTRIES = "there are entries to send"
    LOST = "no answer in time, or the connection broke"


_COMPARE, _TRUNCATE, _APPEND, _COMMIT = (
    Phase.COMPARE,
    Phase.TRUNCATE,
    Phase.APPEND,
    Phase.COMMIT,
)

PHASE_CHANGES: dict[tuple[Phase, PhaseEvent], Phase] = {
    (_COMPARE, PhaseEvent.MATCHED): _APPEND,
    (_COMPARE, PhaseEvent.LONGER): _TRUNCATE,
    (_COMPARE, PhaseEvent.MISMATCHED): _COMPARE,
    (_COMPARE, PhaseEvent.LOST): _COMPARE,
    (_TRUNCATE, PhaseEvent.TRUNCATED): _APPEND,
    (_TRUNCATE, PhaseEvent.MISMATCHED): _COMPARE,
    (_TRUNCATE, PhaseEvent.LOST): _COMPARE,
    (_APPEND, PhaseEvent.CAUGHT_UP): _COMMIT,
    (_APPEND, PhaseEvent.CONFLICT): _TRUNCATE,
    (_APPEND, PhaseEvent.MISMATCHED): _COMPARE,
    (_APPEND, PhaseEvent.LOST): _COMPARE,
    (_COMMIT, PhaseEvent.NEW_ENTRIES): _APPEND,
    (_COMMIT, PhaseEvent.CONFLICT): _TRUNCATE,
    (_COMMIT, PhaseEvent.MISMATCHED): _COMPARE,
    (_COMMIT, PhaseEvent.LOST): _COMPARE,
}


class BatchSizer(Protocol):
    """Knows how many entries fit into one push: the store, which knows their sizes."""

    def batch_end(self, first: int, last: int) -> int:
        """The last index of the batch that begins at `first` and ends at `last` at most."""
        ...


class EntryDispatcher:
    """One peer's progress, as its leader knows it."""

    __slots__ = (
        "_batches",
        "_in_flight",
        "_probe_deadline",
        "_progress_deadline",
        "_sent_committed",
        "_term",
        "_view",
        "commit_notice_at",
        "last_answer_at",
        "match_index",
        "next_index",
        "peer",
        "phase",
        "proven",
        "regressed",
    )

    def __init__(
        self, peer: str, term: int, view: LedgerView, batches: BatchSizer, now: float
    ) -> None:
        self.peer = peer
        self.phase = Phase.COMPARE
        # The no-op that opens the term is already the last entry: begin right before it.
        self.next_index = view.last_index
        self.match_index = -1
        self.proven = True  # as the peer says of itself: see Admission
        self.regressed = False  # it seems to have lost what it had acknowledged
        self.last_answer_at = now
        self.commit_notice_at = now
        self._term = term
        self._view = view
        self._batches = batches
        self._in_flight: deque[int] = deque()
        self._probe_deadline = now
        self._progress_deadline = now
        self._sent_committed = -1

    # --- what to send -------------------------------------------------------------------------

    def pump(self, committed: int, now: float) -> list[PushRequest]:
        """Everything that may be sent now."""
        # What was discarded cannot be sent, and its terms are not known any more.
        self.next_index = max(self.next_index, self._view.before_begin + 1)
        if self._stuck(now):
            self._change(PhaseEvent.LOST)
            self._probe_deadline = now
        if self.phase is Phase.COMMIT and self.next_index <= self._view.last_index:
            self._change(PhaseEvent.NEW_ENTRIES)
        if self.phase in (Phase.COMPARE, Phase.TRUNCATE):
            return self._probe(committed, now)
        pushes = self._appends(committed, now) if self.phase is Phase.APPEND else []
        if self.phase is Phase.COMMIT:
            pushes += self._commit_notice(committed, now)
        return pushes

    def next_deadline(self, committed: int) -> float:
        """When `pump` may have something to send though nothing arrived."""
        if self.phase in (Phase.COMPARE, Phase.TRUNCATE):
            return self._probe_deadline
        deadline = float("inf")
        if self.match_index < self.next_index - 1:
            deadline = self._progress_deadline
        # While appends wait for room in the window, they are what will carry the commit index.
        if self.phase is Phase.COMMIT and self._sent_committed < committed:
            deadline = min(deadline, self.commit_notice_at)
        return deadline

    def _stuck(self, now: float) -> bool:
        return (
            self.phase in (Phase.APPEND, Phase.COMMIT)
            and self.match_index < self.next_index - 1
            and now >= self._progress_deadline
        )

    def _push(self, phase: Phase, last_index: int, committed: int) -> PushRequest:
        view, first = self._view, self.next_index
        next_term = view.term_at(first) if phase is Phase.TRUNCATE else -1
        self._sent_committed = max(self._sent_committed, committed)
        return PushRequest(
            term=self._term,
            phase=phase,
            prev_index=first - 1,
            prev_term=view.term_at(first - 1),
            last_index=last_index,
            committed=committed,
            next_term=next_term,
            runs=view.runs(first, last_index),
        )

    def _probe(self, committed: int, now: float) -> list[PushRequest]:
        if now < self._probe_deadline:
            return []
        self._probe_deadline = now + ANSWER_TIMEOUT_S
        return [self._push(self.phase, self.next_index - 1, committed)]

    def _appends(self, committed: int, now: float) -> list[PushRequest]:
        pushes = []
        last = self._view.last_index
        # A late answer may have moved the match past the probe that led here: what is acknowledged
        # already would never leave the window again.
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.next_index <= last and len(self._in_flight) < MAX_BATCHES_IN_FLIGHT:
            if self.match_index >= self.next_index - 1:
                self._progress_deadline = now + ANSWER_TIMEOUT_S
            end = self._batches.batch_end(self.next_index, last)
            pushes.append(self._push(Phase.APPEND, end, committed))
            self._in_flight.append(end)
            self.next_index = end + 1
        if pushes:
            self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        if self.next_index > last:
            self._change(PhaseEvent.CAUGHT_UP)
        return pushes

    def _commit_notice(self, committed: int, now: float) -> list[PushRequest]:
        if self._sent_committed >= committed or now < self.commit_notice_at:
            return []
        self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        return [self._push(Phase.COMMIT, self.next_index - 1, committed)]

    # --- what came back -----------------------------------------------------------------------

    def receive(self, response: PushResponse, now: float) -> None:
        """Take one answer, however late or repeated."""
        self.last_answer_at = now
        self.proven = response.proven
        if response.match > self._view.last_index:
            raise InvariantBroken(
                f"{self.peer} acknowledges {response.match}, the log ends at "
                f"{self._view.last_index}"
            )
        if response.match > self.match_index:
            self.match_index = response.match
            self._progress_deadline = now + ANSWER_TIMEOUT_S
            while self._in_flight and self._in_flight[0] <= response.match:
                self._in_flight.popleft()
        if response.ok:
            self._accepted(response, now)
        else:
            self._refused(response, now)

    def lost(self, now: float) -> None:
        """The connection broke, so pushes may have been lost: compare anew."""
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now + ANSWER_TIMEOUT_S

    def reachable(self, now: float) -> None:
        """The connection is there again: probe at once."""
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now

    def start_over(self, now: float) -> None:
        """The peer has lost its log, or a part of it: what it acknowledged says nothing now."""
        self._change(PhaseEvent.LOST)
        self.next_index = self._view.last_index
        self.match_index = -1
        self.proven = self.regressed = False
        self._probe_deadline = now

    def take_regression(self) -> bool:
        """Whether the peer refused what it had acknowledged; True once for each refusal."""
        regressed, self.regressed = self.regressed, False
        return regressed

    def _accepted(self, response: PushResponse, now: float) -> None:
        answers_probe = response.phase is self.phase and response.index == self.next_index - 1
        if self.phase is Phase.COMPARE and answers_probe:
            longer = response.last_index > response.index
            self._change(PhaseEvent.LONGER if longer else PhaseEvent.MATCHED)
        elif self.phase is Phase.TRUNCATE and answers_probe:
            self._change(PhaseEvent.TRUNCATED)
        else:
            return
        self._probe_deadline = now
        self._progress_deadline = now + ANSWER_TIMEOUT_S

    def _refused(self, response: PushResponse, now: float) -> None:
        if self.phase in (Phase.COMPARE, Phase.TRUNCATE):
            if response.index != self.next_index - 1:
                return  # an answer to a probe that is no longer of interest
        elif response.index < self.match_index:
            return  # it agreed further than that since
        if response.verified >= response.index and self.phase in (Phase.APPEND, Phase.COMMIT):
            self.next_index = response.verified + 1
            self._change(PhaseEvent.CONFLICT)
        else:
            refused = self.next_index
            self._back_off(response)
            self._change(PhaseEvent.MISMATCHED)
            if self.next_index == refused:
                self.regressed = self.next_index == self.match_index + 1
                return  # it refuses what it once acknowledged: ask again, but not at once
        self._probe_deadline = now

    def _back_off(self, response: PushResponse) -> None:
        """Skip back to where the logs can agree: whole term runs at a time."""
        agreed = self._view.last_index_with_term_at_most(response.hint_term, response.hint_index)
        # Strictly below the refused probe, so that comparing ends; never below what is agreed.
        agreed = min(agreed, response.index - 1)
        self.next_index = max(agreed, self.match_index, self._view.before_begin) + 1

    def _change(self, event: PhaseEvent) -> None:
        phase = PHASE_CHANGES.get((self.phase, event))
        if phase is None:
            raise InvariantBroken(f"{self.phase.name}: {event.value}: not a transition")
        if phase in (Phase.COMPARE, Phase.TRUNCATE):
            self._in_flight.clear()
        self.phase = phase
