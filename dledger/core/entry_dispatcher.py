"""Leader side: makes one peer's log equal to the leader's, and keeps it so.

A dispatcher first COMPAREs (one probe in flight, backing off a whole term run at a time), has the
peer TRUNCATE entries that contradict the leader's, then streams APPENDs with a window of batches in
flight, and sends the COMMIT index when nothing is left to stream. A peer that lacks entries from
before the beginning of the leader's log first gets a snapshot (INSTALL_SNAPSHOT); then the logs are
compared again. Pure: time comes in, pushes come out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from dledger.core.agenda import REPLICATE, TELL, Agenda
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

# Batches in flight to one peer. A round trip with a sync takes about 1 ms and a batch holds the
# entries of one driver turn, so a handful keeps the pipe full; the rest is room for a slow disk. A
# large entry counts as many batches, or heartbeats would wait behind 64 MiB on the connection.
MAX_BATCHES_IN_FLIGHT = 16

# The least time between two pushes that carry only a commit index. Appends carry it for free; an
# idle peer learns it with at most this delay.
COMMIT_NOTICE_INTERVAL_S = 0.01

_NEVER = float("inf")
_NOW = float("-inf")
_UNKNOWN = float("-inf")


class PhaseEvent(Enum):
    """The events that can change a dispatcher's phase."""

    MATCHED = "the logs agree at the probe, and the peer's ends there"
    LONGER = "the logs agree at the probe, and the peer's is longer"
    MISMATCHED = "the logs differ at the entry that the push builds on"
    CONFLICT = "an entry of the push contradicts one of the peer's"
    TRUNCATED = "the peer dropped the contradicting entries"
    CAUGHT_UP = "everything has been sent"
    NEW_ENTRIES = "there are entries to send"
    LOST = "no answer in time, or the connection broke"
    BEHIND = "the peer lacks entries from before the beginning of this log"
    AGREES = "the peer holds the entry that the snapshot's log begins behind"


_COMPARE, _TRUNCATE, _APPEND, _COMMIT, _INSTALL = Phase

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
    """Cuts the log into pushes. The node implements it over the store, which knows the sizes."""

    def batch_end(self, first: int, last: int) -> int:
        """Return the last index of the batch that begins at `first` and ends at `last` at most."""

    def batch_weight(self, first: int) -> int:
        """Return how many batches of the usual size the batch just cut at `first` counts as."""


# A peer that installs a snapshot keeps the leader's log from being discarded. After this much
# silence it no longer does; such a peer begins again with a newer snapshot when it comes back.
MAX_SILENCE_S = 30.0


class EntryDispatcher:
    """One peer's progress, as its leader knows it."""

    __slots__ = (
        "_agenda",
        "_batches",
        "_in_flight",
        "_in_flight_weight",
        "_most_sent",
        "_probe_deadline",
        "_probed",
        "_progress_deadline",
        "_round_trip",
        "_sent_committed",
        "_snapshots",
        "_term",
        "_view",
        "answered",
        "commit_notice_at",
        "lacks_snapshot",
        "last_answer_at",
        "last_sender",
        "match_index",
        "next_index",
        "peer",
        "phase",
        "promised_index",
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
        agenda: Agenda,
        snapshots: SnapshotSource = NO_SNAPSHOTS,
    ) -> None:
        self.peer = peer
        self._agenda = agenda
        agenda.due |= REPLICATE
        self.phase = Phase.COMPARE
        # The no-op that opens the term is already the last entry: begin right before it.
        self.next_index = view.last_index
        self.match_index = -1
        self.promised_index = -1  # the match while the peer was proven
        self.answered = False  # whether the peer has answered a push yet
        self.proven = True  # as the peer reports about itself: see Admission
        self.regressed = False  # the peer seems to have lost entries that it acknowledged
        self.last_answer_at = now
        self.commit_notice_at = now
        self._term = term
        self._view = view
        self._batches = batches
        # For each batch in flight: its last entry, when it left (minus infinity if some of its
        # entries had been sent before), and how many batches it counts as.
        self._in_flight: deque[tuple[int, float, int]] = deque()
        self._in_flight_weight = 0
        self._most_sent = -1
        self._round_trip = RoundTrip()
        self._probed = False  # whether the probe of `next_index` was sent
        self._probe_deadline = now
        self._progress_deadline = now
        self._sent_committed = -1
        # Whether the peer needs a snapshot and this leader has none to send.
        self.lacks_snapshot = False
        self._snapshots = snapshots
        # The running transfer, or the one whose snapshot the peer catches up from.
        self.last_sender: SnapshotSender | None = None

    # --- sending ------------------------------------------------------------------------------

    def pump(self, committed: int, now: float) -> list[PushRequest]:
        """Return all pushes that may be sent now; for snapshots see `pump_snapshot`."""
        if self.phase is _INSTALL:
            return []
        if self.next_index <= self._view.before_begin:
            # Discarded entries cannot be sent, and their terms are no longer known.
            self.next_index = self._view.before_begin + 1
        if (
            now >= self._progress_deadline
            and self.match_index < self.next_index - 1
            and (self.phase is _APPEND or self.phase is _COMMIT)
        ):
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
        """Return when `pump` may have something to send without new input; minus infinity: now."""
        if self.phase is _COMPARE or self.phase is _TRUNCATE:
            return self._probe_deadline
        if self.phase is _INSTALL and self.last_sender is not None:
            return self.last_sender.next_deadline()
        if self.next_index > self._view.last_index:
            if self.phase is _APPEND:
                return _NOW  # the peer has the whole log; it may lack the commit index
        elif self.phase is _COMMIT or self._in_flight_weight < MAX_BATCHES_IN_FLIGHT:
            return _NOW
        deadline = _NEVER
        if self.match_index < self.next_index - 1:
            deadline = self._progress_deadline
        # While appends wait for room in the window, they will carry the commit index.
        if self.phase is _COMMIT and self._sent_committed < committed:
            return min(deadline, self.commit_notice_at)
        return deadline

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
        # A late answer may have moved the match past the probe that led here. Entries that are
        # already acknowledged would never leave the window again.
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.next_index <= last and self._in_flight_weight < MAX_BATCHES_IN_FLIGHT:
            if self.match_index >= self.next_index - 1:
                self._progress_deadline = now + self._round_trip.wait_s
            end = self._batches.batch_end(self.next_index, last)
            pushes.append(self._push(Phase.APPEND, end, committed))
            # Do not measure a repeated batch: the acknowledgement may be for its first copy.
            left_at = now if self.next_index > self._most_sent else _UNKNOWN
            weight = self._batches.batch_weight(self.next_index)
            self._in_flight.append((end, left_at, weight))
            self._in_flight_weight += weight
            self._most_sent = max(self._most_sent, end)
            self.next_index = end + 1
        if pushes:
            self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        if self.next_index > last:
            self._change(PhaseEvent.CAUGHT_UP)
            self.last_sender = None
        return pushes

    def _commit_notice(self, committed: int, now: float) -> list[PushRequest]:
        if now < self.commit_notice_at:
            return []
        self.commit_notice_at = now + COMMIT_NOTICE_INTERVAL_S
        return [self._push(Phase.COMMIT, self.next_index - 1, committed)]

    # --- answers ------------------------------------------------------------------------------

    def receive(self, response: PushResponse, now: float) -> None:
        """Handle one answer, which may be late or repeated.

        Raises PeerFault if it acknowledges entries beyond the end of this log.
        """
        end, acknowledged = self._view.last_index, max(response.match, response.verified)
        if acknowledged > end:
            fault = f"it acknowledges entry {acknowledged}, the log ends at {end}"
            raise PeerFault(self.peer, fault)
        self.heard(now)
        self.answered = True
        if response.proven:
            self.promised_index = max(self.promised_index, response.match)
        if response.proven is not self.proven:
            self.proven = response.proven
            self._agenda.due |= TELL
        if response.match > self.match_index:
            self.match_index = response.match
            self._measure(now)
            self._progress_deadline = now + self._round_trip.wait_s
        if response.ok:
            self._accepted(response, now)
        else:
            self._refused(response, now)
        # A peer that has been sent everything, and nothing in vain, is left alone.
        if self.phase is not _COMMIT or self.next_index <= end:
            self._agenda.due |= REPLICATE

    def heard(self, now: float) -> None:
        """Note that the peer answered; if it was silent before, probe it at once."""
        silent = now - self.last_answer_at >= LEAST_WAIT_S
        self.last_answer_at = now
        if silent and self.phase in (_COMPARE, _TRUNCATE):
            self._probe_deadline = min(self._probe_deadline, now)
            self._agenda.due |= REPLICATE

    def _measure(self, now: float) -> None:
        """Remove acknowledged batches from the window, and measure the one that waited longest."""
        sent_at = _UNKNOWN
        while self._in_flight and self._in_flight[0][0] <= self.match_index:
            _, left_at, weight = self._in_flight.popleft()
            self._in_flight_weight -= weight
            if sent_at == _UNKNOWN:
                sent_at = left_at
        if sent_at != _UNKNOWN:
            self._round_trip.took(now - sent_at)

    def lost(self, now: float) -> None:
        """Compare the logs again: the connection broke, so pushes may have been lost."""
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now + self._round_trip.wait_s
        self._agenda.wake_by(self._probe_deadline)

    def reachable(self, now: float) -> None:
        """Probe at once: the connection is open again."""
        self._round_trip.begin_anew()
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now
        self._agenda.due |= REPLICATE

    def start_over(self, now: float) -> None:
        """Forget what the peer acknowledged: it may have lost some or all of its log."""
        self._change(PhaseEvent.LOST)
        self.next_index = self._view.last_index
        self.match_index = -1
        self.proven = self.regressed = False
        self._probe_deadline = now
        self._agenda.due |= REPLICATE | TELL

    def take_regression(self) -> bool:
        """Return True once if the peer refused an entry that it had acknowledged."""
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
            return  # late: the answer to the offer will show what the peer has
        if self.phase in (Phase.COMPARE, Phase.TRUNCATE):
            if response.index != self.next_index - 1:
                return  # the answer to an earlier probe
        elif response.index < self.match_index:
            return  # the peer has agreed beyond that index since
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
                return  # the peer refuses an entry that it acknowledged: ask again, but not at once
        self._probe_deadline = now

    def _back_off(self, response: PushResponse) -> None:
        """Move `next_index` back to where the logs can agree, whole term runs at a time."""
        agreed = self._view.last_index_with_term_at_most(response.hint_term, response.hint_index)
        # Strictly below the refused probe, so that comparing ends; never below the match.
        agreed = min(agreed, response.index - 1)
        self.next_index = max(agreed, self.match_index, self._view.before_begin) + 1

    # --- snapshots ----------------------------------------------------------------------------

    @property
    def sender(self) -> SnapshotSender | None:
        """The transfer of a snapshot while one runs, for status reports."""
        return self.last_sender if self.phase is Phase.INSTALL_SNAPSHOT else None

    @property
    def needed(self) -> SnapshotOffer | None:
        """The snapshot that is being sent, or that the peer catches up from. This leader should
        keep it, and the log from where the snapshot's log begins.
        """
        return self.last_sender.offer if self.last_sender is not None else None

    def pump_snapshot(self, now: float) -> list[InstallSnapshot]:
        """Return the pieces that may be sent now of a snapshot that the peer needs."""
        if self.phase is not Phase.INSTALL_SNAPSHOT:
            return []
        if (sender := self._present_sender(now)) is not None:
            return sender.pump(now)
        self._change(PhaseEvent.LOST)
        self._probe_deadline = now + self._round_trip.wait_s
        return []

    def receive_install(self, response: InstallSnapshotResponse, now: float) -> None:
        """Handle one answer about a snapshot, which may be late or repeated."""
        self.heard(now)
        self._agenda.due |= REPLICATE
        sender = self.sender
        if sender is None or response.identity != sender.offer.identity:
            return
        if response.outcome is not InstallOutcome.AGREES:
            sender.receive(response, now)
            return
        sender.installed = True
        before = sender.offer.begin.before_index
        self.next_index = max(before, self.match_index, self._view.before_begin) + 1
        self._change(PhaseEvent.AGREES)
        self._probe_deadline = now

    def _is_behind(self, refused: int) -> bool:
        """Return whether the peer refused to build on the beginning of this log."""
        before = self._view.before_begin
        behind = before >= 0 and refused <= before and self.match_index < before
        self.lacks_snapshot = behind
        return behind

    def _present_sender(self, now: float) -> SnapshotSender | None:
        """Return the running transfer if its snapshot still exists, else one of the newest
        snapshot; None if there is no snapshot.
        """
        sender = self.last_sender
        if sender is None or not self._snapshots.holds(sender.offer) or sender.is_over(now):
            newest = self._snapshots.newest()
            if newest is None:
                sender = None
            elif sender is None or newest != sender.offer:
                piece_bytes = self._snapshots.piece_bytes
                sender = SnapshotSender(newest, self._term, now, piece_bytes)
        self.last_sender = sender
        self.lacks_snapshot = sender is None
        return sender

    def _change(self, event: PhaseEvent) -> None:
        phase = PHASE_CHANGES.get((self.phase, event))
        if phase is None:
            raise InvariantBroken(f"{self.phase.name}: {event.value}: not a transition")
        if phase in (Phase.COMPARE, Phase.TRUNCATE):
            self._in_flight.clear()
            self._in_flight_weight = 0
        self._probed = False
        self.phase = phase


def needed_snapshots(dispatchers: Iterable[EntryDispatcher], now: float) -> list[SnapshotOffer]:
    """Return the snapshots that peers are being sent or catch up from. Keep each of them, and the
    log from where its log begins.
    """
    return [
        offer
        for dispatcher in dispatchers
        if (offer := dispatcher.needed) is not None
        and now - dispatcher.last_answer_at < MAX_SILENCE_S
    ]
