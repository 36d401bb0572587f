"""Leader side: brings one peer's log to equal the leader's, and keeps it so.

A dispatcher first COMPAREs (one probe in flight, backing off a whole term run at a time), has the
peer TRUNCATE what contradicts the leader, then streams APPENDs with a window of batches in flight,
and when nothing is left to stream tells the COMMIT index. A peer that is behind the beginning of
the leader's log is first sent a snapshot (INSTALL_SNAPSHOT), then compared again. Pure: time comes
in, pushes come out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from dledger.core.ledger_view import LedgerView
from dledger.core.messages import (
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Phase,
    PushRequest,
    PushResponse,
)
from dledger.core.round_trip import LEAST_WAIT_S, RoundTrip
from dledger.core.snapshot.snapshot_offer import NO_SNAPSHOTS, SnapshotOffer, SnapshotSource
from dledger.core.snapshot.snapshot_sender import SnapshotSender
from dledger.errors import InvariantBroken, PeerFault

# Batches on their way to one peer. A round trip with a sync takes about 1 ms and a batch is what
# one driver turn gathered, so a handful keeps the pipe full; the rest is room for a slow disk.
MAX_BATCHES_IN_FLIGHT = 16

# The least time between two pushes that carry nothing but a commit index. Appends carry it for
# free; an idle peer learns it this late at most.
COMMIT_NOTICE_INTERVAL_S = 0.01


_NEVER = float("inf")
_NOW = float("-inf")
_UNKNOWN = float("-inf")


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
    BEHIND = "the peer lacks what this log begins behind"
    AGREES = "the peer's log agrees with where the snapshot's log begins"


_COMPARE, _TRUNCATE, _APPEND, _COMMIT, _INSTALL = (
    Phase.COMPARE,
    Phase.TRUNCATE,
    Phase.APPEND,
    Phase.COMMIT,
    Phase.INSTALL_SNAPSHOT,
)

PHASE_CHANGES: dict[tuple[Phase, PhaseEvent], Phase] = {
    (_COMPARE, PhaseEvent.MATCHED): _APPEND,
    (_COMPARE, PhaseEvent.LONGER): _TRUNCATE,
    (_COMPARE, PhaseEvent.MISMATCHED): _COMPARE,
    (_COMPARE, PhaseEvent.LOST): _COMPARE,
    (_COMPARE, PhaseEvent.BEHIND): _INSTALL,
    (_INSTALL, PhaseEvent.AGREES): _COMPARE,
    (_INSTALL, PhaseEvent.LOST): _COMPARE,
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


# A peer that installs a snapshot keeps the leader's log from being dropped. Not for ever: one that
# is gone for longer than this begins again with a newer snapshot when it comes back.
MAX_SILENCE_S = 30.0


class EntryDispatcher:
    """One peer's progress, as its leader knows it."""

    __slots__ = (
        "_batches",
        "_in_flight",
        "_most_sent",
        "_probe_deadline",
        "_probed",
        "_progress_deadline",
        "_round_trip",
        "_sender",
        "_sent_committed",
        "_snapshots",
        "_term",
        "_view",
        "answered",
        "commit_notice_at",
        "lacks_snapshot",
        "last_answer_at",
        "match_index",
        "next_index",
        "peer",
        "phase",
        "proven",
        "regressed",
    )

    def __init__(
        self,
        peer: str,
        term: int,
        view: LedgerView,
        batches: BatchSizer,
        now: float,
        snapshots: SnapshotSource = NO_SNAPSHOTS,
    ) -> None:
        self.peer = peer
        self.phase = Phase.COMPARE
        # The no-op that opens the term is already the last entry: begin right before it.
        self.next_index = view.last_index
        self.match_index = -1
        self.answered = False  # whether it has said anything about its log yet
        self.proven = True  # as the peer says of itself: see Admission
        self.regressed = False  # it seems to have lost what it had acknowledged
        self.last_answer_at = now
        self.commit_notice_at = now
        self._term = term
        self._view = view
        self._batches = batches
        # The last entry of each batch on its way, and when it left; minus infinity if some of it
        # had left before.
        self._in_flight: deque[tuple[int, float]] = deque()
        self._most_sent = -1
        self._round_trip = RoundTrip()
        self._probed = False  # whether the probe of `next_index` has left
        self._probe_deadline = now
        self._progress_deadline = now
        self._sent_committed = -1
        # Whether the peer needs a snapshot, and this leader has none to send.
        self.lacks_snapshot = False
        self._snapshots = snapshots
        self._sender: SnapshotSender | None = None  # kept until the peer has caught up

    # --- what to send -------------------------------------------------------------------------

    def pump(self, committed: int, now: float) -> list[PushRequest]:
        """Everything that may be sent now, but for a snapshot: see `pump_snapshot`."""
        if self.phase is _INSTALL:
            return []
        if self.next_index <= self._view.before_begin:
            # What was discarded cannot be sent, and its terms are not known any more.
            self.next_index = self._view.before_begin + 1
        if self._stuck(now):
            self._round_trip.missed()
            self._change(PhaseEvent.LOST)
            self._probe_deadline = now
        if self.phase is _COMMIT and self.next_index <= self._view.last_index:
            self._change(PhaseEvent.NEW_ENTRIES)
        if self.phase is _COMPARE or self.phase is _TRUNCATE:
            return self._probe(committed, now)
        pushes = self._appends(committed, now) if self.phase is _APPEND else []
        if self.phase is _COMMIT and self._sent_committed < committed:
            pushes += self._commit_notice(committed, now)
        return pushes

    def next_deadline(self, committed: int) -> float:
        """When `pump` may have something to send though nothing arrived; minus infinity: now."""
        if self.phase is _COMPARE or self.phase is _TRUNCATE:
            return self._probe_deadline
        if self.phase is _INSTALL and self._sender is not None:
            return self._sender.next_deadline()
        if self.next_index <= self._view.last_index and (
            self.phase is _COMMIT or len(self._in_flight) < MAX_BATCHES_IN_FLIGHT
        ):
            return _NOW
        deadline = _NEVER
        if self.match_index < self.next_index - 1:
            deadline = self._progress_deadline
        # While appends wait for room in the window, they are what will carry the commit index.
        if self.phase is _COMMIT and self._sent_committed < committed:
            return min(deadline, self.commit_notice_at)
        return deadline

    def _stuck(self, now: float) -> bool:
        return (
            self.match_index < self.next_index - 1
            and now >= self._progress_deadline
            and self.phase in (_APPEND, _COMMIT)
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
        if self._probed:
            self._round_trip.missed()
        self._probed = True
        self._probe_deadline = now + self._round_trip.wait_s
        return [self._push(self.phase, self.next_index - 1, committed)]

    def _appends(self, committed: int, now: float) -> list[PushRequest]:
        pushes = []
        last = self._view.last_index
        # A late answer may have moved the match past the probe that led here: what is acknowledged
        # already would never leave the window again.
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.next_index <= last and len(self._in_flight) < MAX_BATCHES_IN_FLIGHT:
            if self.match_index >= self.next_index - 1:
                self._progress_deadline = now + self._round_trip.wait_s
            end = self._batches.batch_end(self.next_index, last)
            pushes.append(self._push(Phase.APPEND, end, committed))
            # What is sent again is not measured: its acknowledgement may be the first copy's.
            self._in_flight.append((end, now if self.next_index > self._most_sent else _UNKNOWN))
            self._most_sent = max(self._most_sent, end)
            self.next_index = end + 1
        if pushes:
            self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        if self.next_index > last:
            self._change(PhaseEvent.CAUGHT_UP)
            self._sender = None
        return pushes

    def _commit_notice(self, committed: int, now: float) -> list[PushRequest]:
        if now < self.commit_notice_at:
            return []
        self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        return [self._push(Phase.COMMIT, self.next_index - 1, committed)]

    # --- what came back -----------------------------------------------------------------------

    def receive(self, response: PushResponse, now: float) -> None:
        """Take one answer, however late or repeated.

        Raises PeerFault for one that no correct member gives: of entries that there are not.
        """
        end = self._view.last_index
        if max(response.match, response.verified) > end:
            told = max(response.match, response.verified)
            raise PeerFault(self.peer, f"it acknowledges entry {told}, the log ends at {end}")
        self.heard(now)
        self.answered = True
        self.proven = response.proven
        if response.match > self.match_index:
            self.match_index = response.match
            self._measure(now)
            self._progress_deadline = now + self._round_trip.wait_s
        if response.ok:
            self._accepted(response, now)
        else:
            self._refused(response, now)

    def heard(self, now: float) -> None:
        """The peer answered anything at all: where it was cut off, probe it at once."""
        if now - self.last_answer_at >= LEAST_WAIT_S and self.phase in (_COMPARE, _TRUNCATE):
            self._probe_deadline = min(self._probe_deadline, now)
        self.last_answer_at = now

    def _measure(self, now: float) -> None:
        """Empty the window of what is acknowledged. The batch that waited longest is measured."""
        sent_at = _UNKNOWN
        while self._in_flight and self._in_flight[0][0] <= self.match_index:
            _, left_at = self._in_flight.popleft()
            if sent_at == _UNKNOWN:
                sent_at = left_at
        if sent_at != _UNKNOWN:
            self._round_trip.took(now - sent_at)

    def lost(self, now: float) -> None:
        """The connection broke, so pushes may have been lost: compare anew."""
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now + self._round_trip.wait_s

    def reachable(self, now: float) -> None:
        """The connection is there again: probe at once."""
        self._round_trip.begin_anew()
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
        self._progress_deadline = now + self._round_trip.wait_s

    def _refused(self, response: PushResponse, now: float) -> None:
        if self.phase is Phase.INSTALL_SNAPSHOT:
            return  # late: the peer will say what it has when it answers the offer
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
            if self._is_behind(refused - 1) and (sender := self._present_sender(now)) is not None:
                sender.ask_again(now)
                self._change(PhaseEvent.BEHIND)
                return
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

    # --- snapshots ----------------------------------------------------------------------------

    @property
    def sender(self) -> SnapshotSender | None:
        """The snapshot on its way, while it is; for those who want to know how far it is."""
        return self._sender if self.phase is Phase.INSTALL_SNAPSHOT else None

    @property
    def needed(self) -> SnapshotOffer | None:
        """The snapshot that is being sent, or that the peer catches up from: this leader should
        keep it, and the log from its beginning on.
        """
        return self._sender.offer if self._sender is not None else None

    def pump_snapshot(self, now: float) -> list[InstallSnapshot]:
        """What may be sent now of a snapshot that the peer needs."""
        if self.phase is not Phase.INSTALL_SNAPSHOT:
            return []
        if (sender := self._present_sender(now)) is not None:
            return sender.pump(now)
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now + self._round_trip.wait_s
        return []

    def receive_install(self, response: InstallSnapshotResponse, now: float) -> None:
        """Take one answer about a snapshot, however late or repeated."""
        self.heard(now)
        sender = self.sender
        if sender is None or response.identity != sender.offer.identity:
            return
        if response.outcome is not InstallOutcome.AGREES:
            sender.receive(response, now)
            return
        before = sender.offer.begin.before_index
        self.next_index = max(before, self.match_index, self._view.before_begin) + 1
        self._change(PhaseEvent.AGREES)
        self._probe_deadline = now

    def _is_behind(self, refused: int) -> bool:
        """Whether the peer refused to build on the very beginning of this log."""
        before = self._view.before_begin
        behind = before >= 0 and refused <= before and self.match_index < before
        self.lacks_snapshot = behind
        return behind

    def _present_sender(self, now: float) -> SnapshotSender | None:
        """The one under way if its snapshot still serves, else one of the newest; None without."""
        sender = self._sender
        if sender is None or not self._snapshots.holds(sender.offer) or sender.is_over(now):
            newest = self._snapshots.newest()
            if newest is None:
                sender = None
            elif sender is None or newest != sender.offer:
                piece_bytes = self._snapshots.piece_bytes
                sender = SnapshotSender(newest, self._term, now, piece_bytes)
        self._sender = sender
        self.lacks_snapshot = sender is None
        return sender

    def _change(self, event: PhaseEvent) -> None:
        phase = PHASE_CHANGES.get((self.phase, event))
        if phase is None:
            raise InvariantBroken(f"{self.phase.name}: {event.value}: not a transition")
        if phase in (Phase.COMPARE, Phase.TRUNCATE):
            self._in_flight.clear()
        self._probed = False
        self.phase = phase


def needed_snapshots(dispatchers: Iterable[EntryDispatcher], now: float) -> list[SnapshotOffer]:
    """What peers are being sent, or catch up from: to be kept, with the log from the beginning of
    each on.
    """
    return [
        offer
        for dispatcher in dispatchers
        if (offer := dispatcher.needed) is not None
        and now - dispatcher.last_answer_at < MAX_SILENCE_S
    ]
