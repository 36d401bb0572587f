"""All reads of one member, whatever its role: its own, and as a leader those of its followers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.membership import Membership
from dledger.core.messages import HeartbeatResponse, ReadRequest, ReadResponse
from dledger.core.outbox import Outbox
from dledger.core.reads.forwarded_reads import ForwardedReads
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.read_index import ReadIndex, ReadReady, RemoteRead
from dledger.core.replica_config import ReplicaConfig

# A float between 0 and 1 has no more than 53 bits to draw from.
FIRST_NUMBERS = 2**52

# Reads that may be served, and reads that are lost.
NO_OUTCOMES: tuple[Sequence[ReadReady], Sequence[int]] = ((), ())


class OpenReads:
    """The reads asked of this member, in the order they came: each ends in bounded time."""

    __slots__ = ("_deadlines", "_new", "_open", "_wait_s")

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._new: list[int] = []
        self._open: set[int] = set()
        self._deadlines: deque[tuple[float, int]] = deque()

    @property
    def is_any(self) -> bool:
        """Whether a read is open."""
        return bool(self._open)

    def begin(self, ticket: int) -> None:
        """A read begins; its time runs from the next `stamp`."""
        self._new.append(ticket)
        self._open.add(ticket)

    def stamp(self, now: float) -> None:
        """The reads that began since the last call began now."""
        if self._new:
            self._deadlines.extend((now + self._wait_s, ticket) for ticket in self._new)
            self._new.clear()

    def finish(self, ticket: int) -> None:
        """A read is done."""
        self._open.discard(ticket)

    def expire(self, now: float) -> list[int]:
        """The reads whose time is over, once."""
        expired = []
        while self._deadlines and (
            self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._open
        ):
            _, ticket = self._deadlines.popleft()
            if ticket in self._open:
                self._open.remove(ticket)
                expired.append(ticket)
        return expired

    @property
    def next_deadline(self) -> float:
        """When the next read is given up."""
        return self._deadlines[0][0] if self._deadlines else float("inf")


class MemberReads:
    """Confirms reads by a round or by lease on a leader, by asking the leader on others.

    A read never vanishes: it becomes ready, or it is lost with a message to its caller, within
    `read_wait_s`.

    Attributes:
        busy: whether any read is open, or its outcome has not been taken. Else there is nothing
            to ask here: most turns are about appends alone.
    """

    __slots__ = (
        "_config",
        "_forwarded",
        "_lost",
        "_open",
        "_outbox",
        "_ready",
        "_state",
        "_view",
        "busy",
        "index",
        "lease",
    )

    def __init__(
        self,
        config: ReplicaConfig,
        state: MemberState,
        view: LedgerView,
        outbox: Outbox,
        share: Callable[[], float],
    ) -> None:
        self._config = config
        self._state = state
        self._view = view
        self._outbox = outbox
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

    def lead(self) -> None:
        """This member was elected: reads that waited for a leader have found one."""
        quorum = self._state.membership.quorum
        self.index = ReadIndex(self._state.self_id, quorum)
        for ticket in self._forwarded.take_all():
            self.index.hold(ticket)
        drift = self._config.max_clock_drift
        if drift is not None:
            self.lease = LeaderLease(self._state.self_id, quorum, drift)

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

    def request(self, ticket: int) -> None:
        """A read of an application on this member."""
        self.busy = True
        self._open.begin(ticket)
        if self.index is None:
            self._forwarded.add(ticket)
        else:
            self._begin(self.index, ticket)

    def request_of(self, peer: str, request: ReadRequest) -> None:
        """A follower's question."""
        if self.index is not None:
            self.busy = True
            self._begin(self.index, RemoteRead(peer, request.number))

    def _begin(self, index: ReadIndex, ticket: int | RemoteRead) -> None:
        if self.commits_in_own_term:
            index.add(ticket, self._state.committed)
        else:
            index.hold(ticket)

    @property
    def commits_in_own_term(self) -> bool:
        """Whether this leader has committed an entry of its own term (then its commit index is
        as far as any predecessor's ever was).
        """
        return self._view.term_at(self._state.committed) == self._state.term

    def committed(self) -> None:
        """This leader committed more, all of it in its own term: reads that were held begin."""
        if self.index is not None:
            self.index.release_held(self._state.committed)

    def answered(self, response: ReadResponse) -> None:
        """A leader's answer to a question of this member."""
        self._finish(self._forwarded.answer(response))

    def confirm(self, voter: str, response: HeartbeatResponse) -> None:
        """`voter` follows this leader."""
        if self.index is not None:
            self.index.confirm(voter, response.round)
        if self.lease is not None:
            self.lease.confirm(voter, response.round, response.promised_ms)

    def expire(self, now: float) -> None:
        """Give up what has waited for too long."""
        if not self.busy:
            return
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

    def pursue(self, broadcast: Callable[[float], int], now: float) -> None:
        """Have open reads confirmed, and those of followers answered.

        `broadcast` sends a round of heartbeats.
        """
        state = self._state
        self._open.stamp(now)
        if self.index is None:
            question = self._forwarded.question(state.leader, state.term, now)
            if state.leader is not None and question is not None:
                self._outbox.promise(state.leader, question)
            return
        if self.lease is not None and self.lease.holds(now):
            self._finish(self.index.take_by_lease())
        if self.index.needs_round:
            broadcast(now)
        self._finish(self.index.take_ready())
        for read, index in self.index.take_remote_ready():
            self._outbox.send(read.peer, ReadResponse(state.term, read.number, index))

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

    def _finish(self, ready: list[ReadReady]) -> None:
        """These may be served once their index is applied; until then they can still expire."""
        for read in ready:
            if read.index <= self._state.applied:
                self._open.finish(read.ticket)
        self._ready += ready
