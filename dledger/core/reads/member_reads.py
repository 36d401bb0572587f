"""All reads of one member, whatever its role: its own, and as a leader those of its followers."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.member_state import MemberState
from dledger.core.membership.membership import Membership
from dledger.core.messages import HeartbeatResponse, ReadRequest, ReadResponse
from dledger.core.reads.forwarded_reads import ForwardedReads
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.open_reads import OpenReads
from dledger.core.reads.read_index import ReadIndex, ReadReady, RemoteRead
from dledger.core.replica_config import ReplicaConfig

# A float between 0 and 1 has no more than 53 bits to draw from.
FIRST_NUMBERS = 2**52


class MemberReads:
    """Confirms reads by a round or by lease on a leader, by asking the leader on others.

    A read never vanishes: it becomes ready, or it is lost with a message to its caller, within
    `read_wait_s`. `committed` is a leader's commit index where it stands for reads (an entry of
    the own term is committed), else None.

    Attributes:
        busy: whether any read is open, or its outcome has not been taken. Else there is nothing
            to ask here: most turns are about appends alone.
    """

    __slots__ = ("_config", "_forwarded", "_lost", "_open", "_ready", "busy", "index", "lease")

    def __init__(self, config: ReplicaConfig, share: Callable[[], float]) -> None:
        self._config = config
        self._open = OpenReads(config.read_wait_s)
        # Drawn at random from so many that no two lives of a member ask under the same number.
        first_number = int(share() * FIRST_NUMBERS)
        self._forwarded = ForwardedReads(first_number, config.read_repeat_s)
        self._ready: list[ReadReady] = []
        self._lost: list[int] = []
        self.busy = False
        self.index: ReadIndex | None = None
        self.lease: LeaderLease | None = None

    # --- what changes with the role -----------------------------------------------------------

    def lead(self, state: MemberState) -> None:
        """This member was elected: reads that waited for a leader have found one."""
        quorum = state.membership.quorum
        self.index = ReadIndex(state.self_id, quorum)
        for ticket in self._forwarded.take_all():
            self.index.hold(ticket)
        drift = self._config.max_clock_drift
        if drift is not None:
            self.lease = LeaderLease(state.self_id, quorum, drift)

    def follow(self, membership: Membership) -> None:
        """Another configuration is in force on this leader."""
        if self.index is not None:
            self.index.follow(membership.quorum, membership.members)
        if self.lease is not None:
            self.lease.follow(membership.quorum, membership.members)

    def leave_office(self) -> None:
        """It leads no more: its open reads are lost, and its lease is over."""
        if self.index is not None:
            for ticket in self.index.take_all():
                self._open.finish(ticket)
                self._lost.append(ticket)
        self.index = None
        self.lease = None

    # --- what arrives -------------------------------------------------------------------------

    def request(self, ticket: int, committed: int | None) -> None:
        """A read of an application on this member."""
        self.busy = True
        self._open.begin(ticket)
        if self.index is None:
            self._forwarded.add(ticket)
        else:
            self._begin(self.index, ticket, committed)

    def request_of(self, peer: str, request: ReadRequest, committed: int | None) -> None:
        """A follower's question."""
        if self.index is not None:
            self.busy = True
            self._begin(self.index, RemoteRead(peer, request.number), committed)

    @staticmethod
    def _begin(index: ReadIndex, ticket: int | RemoteRead, committed: int | None) -> None:
        if committed is None:
            index.hold(ticket)
        else:
            index.add(ticket, committed)

    def answered(self, response: ReadResponse, applied: int) -> None:
        """A leader's answer to a question of this member."""
        self._finish(self._forwarded.answer(response), applied)

    def confirm(self, voter: str, response: HeartbeatResponse) -> None:
        """`voter` follows this leader."""
        if self.index is not None:
            self.index.confirm(voter, response.round)
        if self.lease is not None:
            self.lease.confirm(voter, response.round, response.promised_ms)

    def expire(self, now: float) -> None:
        """Give up what has waited for too long."""
        expired = self._open.expire(now)
        if not expired:
            return
        gone = set(expired)
        self._forwarded.drop(gone)
        if self.index is not None:
            self.index.drop(gone)
        self._lost += expired

    # --- what leaves --------------------------------------------------------------------------

    def next_round(self, now: float) -> int:
        """The number of the heartbeats about to be sent; 0 on a member that sends none."""
        if self.index is None:
            return 0
        number = self.index.next_round()
        if self.lease is not None:
            self.lease.sent(number, now)
        return number

    def needs_round(self, applied: int, now: float) -> bool:
        """Whether a read waits for heartbeats that have not been sent, and no lease spares them."""
        self._open.stamp(now)
        if self.index is None:
            return False
        if self.lease is not None and self.lease.holds(now):
            self._finish(self.index.take_by_lease(), applied)
        return self.index.needs_round

    def question(self, leader: str | None, term: int, now: float) -> ReadRequest | None:
        """What to ask the leader now, if anything."""
        return self._forwarded.question(leader, term, now) if self.index is None else None

    def answers(self, term: int, applied: int) -> list[tuple[str, ReadResponse]]:
        """What the followers may be told now; the own reads are for `take_outcomes`."""
        if self.index is None:
            return []
        self._finish(self.index.take_ready(), applied)
        remote = self.index.take_remote_ready()
        return [(read.peer, ReadResponse(term, read.number, index)) for read, index in remote]

    def take_outcomes(self) -> tuple[list[ReadReady], list[int]]:
        """The own reads that may be served, and those that are lost."""
        ready, self._ready = self._ready, []
        lost, self._lost = self._lost, []
        self.busy = self._open.is_any or (self.index is not None and self.index.is_any)
        return ready, lost

    @property
    def next_deadline(self) -> float:
        """When time alone changes something."""
        if not self.busy:
            return float("inf")
        return min(self._open.next_deadline, self._forwarded.next_deadline)

    def _finish(self, ready: list[ReadReady], applied: int) -> None:
        """These may be served once their index is applied; until then they can still expire."""
        for read in ready:
            if read.index <= applied:
                self._open.finish(read.ticket)
        self._ready += ready
