"""Bugs planted on purpose. The simulation must catch each of them, or a passing run proves nothing.

Each one is a mistake that some implementation of Raft has shipped or that its authors warn of. A
bug is planted in this process only, and only while a run lasts: the product has no hooks for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from dledger.core.entry_handler import EntryHandler, Truncation
from dledger.core.hard_state import HardState
from dledger.core.leader_elector import LeaderElector
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.quorum import Majority, VoteOutcome
from dledger.core.messages import (
    HeartbeatResponse,
    Message,
    PushRequest,
    PushResponse,
    ReadResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.core.outbox import Outbox
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.member_reads import ForwardedReads, MemberReads, OpenReads
from dledger.core.reads.member_reads import _Waiting as _Forwarded
from dledger.core.reads.read_index import ReadIndex, ReadReady, _Waiting
from dledger.core.replica import Replica
from dledger.entry import HEADER_BYTES
from dledger.sessions.session_table import FrozenSession, SessionTable, Verdict
from dledger.store import walk
from dledger.store.log_durability import SegmentSyncWork
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.early_election_bugs import EARLY_ELECTION_BUGS
from jepsen_like.simulation.lost_disk_bugs import LOST_DISK_BUGS
from jepsen_like.simulation.membership_bugs import MEMBERSHIP_BUGS
from jepsen_like.simulation.room_bugs import ROOM_BUGS
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug
from jepsen_like.simulation.snapshot_bugs import SNAPSHOT_BUGS
from jepsen_like.simulation.stall_bugs import STALL_BUGS
from jepsen_like.simulation.turn_bugs import TURN_BUGS
from jepsen_like.simulation.virtual_clock import ROUNDING_S, VirtualClock
from jepsen_like.simulation.virtual_disk import VirtualDisk

_BUGS: dict[str, SeededBug] = {
    bug.name: bug
    for bug in (
        *EARLY_ELECTION_BUGS,
        *MEMBERSHIP_BUGS,
        *SNAPSHOT_BUGS,
        *LOST_DISK_BUGS,
        *TURN_BUGS,
        *STALL_BUGS,
        *ROOM_BUGS,
    )
}


def _bug(name: str, what: str) -> Callable[[Callable[[], list[Replacement]]], None]:
    def enter(replacements: Callable[[], list[Replacement]]) -> None:
        _BUGS[name] = SeededBug(name, what, replacements)

    return enter


def seeded_bugs() -> dict[str, SeededBug]:
    """All bugs, by name."""
    return dict(_BUGS)


# --- elections ----------------------------------------------------------------------------------


@_bug("vote-not-durable", "a vote leaves before it is on disk")
def _vote_not_durable() -> list[Replacement]:
    return [Replacement(Outbox, "promise", Outbox.send)]


@_bug("vote-forgotten", "a restarted node forgets its vote")
def _vote_forgotten() -> list[Replacement]:
    remembered: Any = SegmentStore.hard_state

    def hard_state(self: SegmentStore) -> HardState:
        state: HardState = remembered.fget(self)
        return state._replace(voted_for=None)

    return [Replacement(SegmentStore, "hard_state", property(hard_state))]


@_bug("vote-twice", "a second candidate of a term gets a vote as well")
def _vote_twice() -> list[Replacement]:
    def vote(self: LeaderElector, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        granted = request.term == self._state.term and self.log_is_current(request)
        if granted:
            self._state.voted_for = candidate
            self.postpone(now)
        return VoteResponse(self._state.term, granted, pre=False)

    return [Replacement(LeaderElector, "vote", vote)]


@_bug("votes-counted-not-voters", "a repeated answer counts as a second vote")
def _votes_counted() -> list[Replacement]:
    def count(self: LeaderElector, voter: str, granted: bool) -> None:
        if granted:
            self._granted[f"{voter} {len(self._granted)}"] = True

    def won(self: LeaderElector) -> bool:
        return 2 * len(self._granted) > len(self._state.membership.voting_members)

    return [
        Replacement(LeaderElector, "count", count),
        Replacement(LeaderElector, "won", property(won)),
    ]


@_bug("half-is-a-quorum", "half of an even group, or less than half of an odd one, decides")
def _half_is_a_quorum() -> list[Replacement]:
    made = Majority.__init__

    def make(self: Majority, voters: Iterable[str]) -> None:
        made(self, voters)
        self._place = len(self.voters) - max(1, len(self.voters) // 2)

    def outcome(self: Majority, votes: Mapping[str, bool]) -> VoteOutcome:
        granted = sum(votes[voter] for voter in self.voters & votes.keys())
        won = granted >= max(1, len(self.voters) // 2)
        return VoteOutcome.WON if won else VoteOutcome.PENDING

    return [Replacement(Majority, "__init__", make), Replacement(Majority, "outcome", outcome)]


@_bug("log-check-skipped", "a candidate with a shorter log gets votes (Raft 5.4.1)")
def _log_check_skipped() -> list[Replacement]:
    def log_is_current(self: LeaderElector, request: VoteRequest) -> bool:
        return True

    return [Replacement(LeaderElector, "log_is_current", log_is_current)]


@_bug("candidate-in-a-hurry", "votes are asked for before the candidate's own is on disk")
def _candidate_in_a_hurry() -> list[Replacement]:
    def ask(self: LeaderElector, *, pre: bool) -> None:
        self._outbox.broadcast(self._state.other_voters, self.request(pre=pre))

    return [Replacement(LeaderElector, "_ask_for_votes", ask)]


# --- replication --------------------------------------------------------------------------------


@_bug("commit-older-term", "an entry of an older term commits by counting (Raft figure 8)")
def _commit_older_term() -> list[Replacement]:
    def committed(self: QuorumAckChecker, view: LedgerView) -> int | None:
        index = self._quorum.committed_index(self._acked)
        return index if index >= 0 else None

    return [Replacement(QuorumAckChecker, "committed", committed)]


@_bug("acknowledge-before-sync", "a follower acknowledges what is only in its cache")
def _acknowledge_before_sync() -> list[Replacement]:
    answered = EntryHandler._answer

    def answer(self: EntryHandler, *arguments: Any, **named: Any) -> PushResponse:
        return answered(self, *arguments, **named)._replace(match=self.verified)

    return [Replacement(EntryHandler, "_answer", answer)]


@_bug("leader-counts-its-cache", "a leader counts itself before its own sync")
def _leader_counts_its_cache() -> list[Replacement]:
    extended = Replica.propose

    def propose(self: Replica, count: int) -> tuple[int, int]:
        first, term = extended(self, count)
        lead = self.leadership
        lead.acknowledge(self.state.self_id, first + count - 1, lead.heartbeat_at)
        return first, term

    return [Replacement(Replica, "propose", propose)]


@_bug("pushes-of-any-term", "a follower takes the pushes of a deposed leader")
def _pushes_of_any_term() -> list[Replacement]:
    received = Replica.receive

    def receive(self: Replica, sender: str, message: Message, now: float) -> None:
        if isinstance(message, PushRequest) and message.term < self.state.term:
            answer = self.handler.handle(message)
            if answer is not None:
                self.outbox.promise(sender, answer)
            return
        received(self, sender, message, now)

    return [Replacement(Replica, "receive", receive)]


@_bug("truncate-without-conflict", "a late push cuts off entries that agree with it")
def _truncate_without_conflict() -> list[Replacement]:
    def truncate(self: EntryHandler, push: PushRequest) -> None:
        if push.prev_index >= self._view.last_index:
            return
        self._view.truncate_after(push.prev_index)
        self._state.durable = min(self._state.durable, push.prev_index)
        self.verified = min(self.verified, push.prev_index)
        self.epoch += 1
        self.writes.append(Truncation(push.prev_index))

    return [Replacement(EntryHandler, "_truncate", truncate)]


@_bug("commit-unverified", "a follower commits entries that no push has confirmed")
def _commit_unverified() -> list[Replacement]:
    def commit(self: EntryHandler, committed: int) -> None:
        self._state.commit(min(committed, self._view.last_index))

    return [Replacement(EntryHandler, "commit", commit)]


# --- the state machine and reads ----------------------------------------------------------------


@_bug("apply-before-durable", "entries are applied that a crash can take back")
def _apply_before_durable() -> list[Replacement]:
    def appliable(self: Replica) -> int:
        return self.state.committed

    def apply(self: MemberState, index: int) -> None:
        self.applied = index

    return [
        Replacement(Replica, "appliable", property(appliable)),
        Replacement(MemberState, "apply", apply),
    ]


@_bug("read-without-round", "a read is served without asking whether one still leads")
def _read_without_round() -> list[Replacement]:
    def add(self: ReadIndex, ticket: int, committed: int) -> None:
        self._waiting.append(_Waiting(ticket, committed, 0))

    return [Replacement(ReadIndex, "add", add)]


@_bug("read-before-own-commit", "a new leader serves reads before its term has committed")
def _read_before_own_commit() -> list[Replacement]:
    return [Replacement(MemberReads, "commits_in_own_term", property(lambda self: True))]


@_bug("follower-read-without-asking", "a follower serves a read from what it knows itself")
def _follower_read_without_asking() -> list[Replacement]:
    def add(self: ForwardedReads, ticket: int) -> None:
        self._waiting.append(_Forwarded(ticket, -1))

    def question(self: ForwardedReads, *_: object) -> None:
        return

    requested = MemberReads.request

    def request(self: MemberReads, ticket: int) -> None:
        requested(self, ticket)
        self.answered(ReadResponse(0, 0, -1))

    return [
        Replacement(ForwardedReads, "add", add),
        Replacement(ForwardedReads, "question", question),
        Replacement(MemberReads, "request", request),
    ]


@_bug("answer-covers-later-reads", "an answer serves reads that came after its question")
def _answer_covers_later_reads() -> list[Replacement]:
    answered = ForwardedReads.answer

    def answer(self: ForwardedReads, response: ReadResponse) -> list[ReadReady]:
        self._number = max(self._number, response.number + 1)
        return answered(self, response._replace(number=self._number))

    return [Replacement(ForwardedReads, "answer", answer)]


@_bug("reads-never-end", "a read without an answer waits for ever")
def _reads_never_end() -> list[Replacement]:
    return [Replacement(OpenReads, "expire", lambda self, now: [])]


# --- leases -------------------------------------------------------------------------------------


@_bug("lease-ignores-drift", "a leader takes its voters' clocks for as fast as its own")
def _lease_ignores_drift() -> list[Replacement]:
    made = LeaderLease.__init__

    def make(self: LeaderLease, *arguments: Any) -> None:
        made(self, *arguments)
        self._share = 1.0

    return [Replacement(LeaderLease, "__init__", make)]


@_bug("clocks-beyond-bound", "clocks drift three times as much as was declared")
def _clocks_beyond_bound() -> list[Replacement]:
    def rate(self: VirtualClock) -> float:
        return max(0.1, 1.0 + 3.0 * (self.rate - 1.0))

    def reads(self: VirtualClock, true_s: float) -> float:
        return self._offset_s + true_s * rate(self)

    def shows_at(self: VirtualClock, local_s: float) -> float:
        return (local_s - self._offset_s) / rate(self) + ROUNDING_S

    return [
        Replacement(VirtualClock, "reads", reads),
        Replacement(VirtualClock, "shows_at", shows_at),
    ]


@_bug("lease-from-answer", "a lease counts from the answer, not from the heartbeat")
def _lease_from_answer() -> list[Replacement]:
    received = Replica.receive

    def receive(self: Replica, sender: str, message: Message, now: float) -> bool:
        lease = self.lease
        if lease is not None and isinstance(message, HeartbeatResponse) and message.promised_ms:
            lease._rounds = deque([(message.round, now)])
        return received(self, sender, message, now)

    return [Replacement(Replica, "receive", receive)]


@_bug("lease-kept-in-transfer", "a leader that told another to stand still trusts its lease")
def _lease_kept_in_transfer() -> list[Replacement]:
    return [Replacement(LeaderLease, "end", lambda self: None)]


# --- sessions -----------------------------------------------------------------------------------


@_bug("session-table-not-consulted", "an append that comes again in a session is applied again")
def _session_table_not_consulted() -> list[Replacement]:
    def admit(self: SessionTable, session: int, sequence: int, _: int, time_ms: int) -> Verdict:
        return Verdict.FRESH if self.keep_alive(session, time_ms) else Verdict.UNKNOWN

    return [Replacement(SessionTable, "admit", admit)]


@_bug("session-results-not-in-snapshots", "a restored member does not know what it has answered")
def _session_results_not_in_snapshots() -> list[Replacement]:
    frozen = SessionTable.frozen

    def without_results(self: SessionTable) -> list[FrozenSession]:
        return [session._replace(kept=()) for session in frozen(self)]

    return [Replacement(SessionTable, "frozen", without_results)]


# --- the store ----------------------------------------------------------------------------------


@_bug("torn-tail-kept", "recovery keeps entries whose sums are wrong")
def _torn_tail_kept() -> list[Replacement]:
    def matches(view: memoryview, at: int, *_: object) -> bool:
        return len(view) - at >= HEADER_BYTES

    return [
        Replacement(walk, "_body_matches", matches),
        Replacement(walk, "_chain_matches", matches),
    ]


@_bug("failed-sync-ignored", "a node goes on after a failed sync (Linux drops the pages)")
def _failed_sync_ignored() -> list[Replacement]:
    def run(self: SegmentSyncWork) -> None:
        for file in self._files:
            with suppress(OSError):
                file.sync()
        with suppress(OSError):
            if self.record is not None:
                self._hard_state_file.write(self.record, durable=True)
        self.done = True

    return [Replacement(SegmentSyncWork, "run", run)]


@_bug("folder-not-synced", "the name of a new file is left to the disk's goodwill")
def _folder_not_synced() -> list[Replacement]:
    def sync_folder(self: VirtualDisk, path: str) -> None:
        return

    return [Replacement(VirtualDisk, "sync_folder", sync_folder)]
