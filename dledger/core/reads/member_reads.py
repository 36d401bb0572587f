"""All reads of one member in any role: its own and, on a leader, those of its followers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import NamedTuple

from dledger.core.agenda import CONFIRM, TELL
from dledger.core.membership.membership import Membership
from dledger.core.messages import HeartbeatResponse, ReadRequest, ReadResponse
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.read_index import ReadIndex, ReadLost, ReadReady, RemoteRead
from dledger.core.shared_parts import SharedParts


class _Waiting(NamedTuple):
    ticket: int
    number: int  # of the first question that covers the read


class ForwardedReads:
    """Asks the leader which index the reads of a member that does not lead wait for (thesis 6.4).

    One question is in flight at a time, and it covers every read that began before it left. If it
    gets no answer, or the leader changes, the member asks again under a new number. An answer
    counts for the reads that began before *its* question, whichever leader sent it and however
    late: that leader still led after it received the question.
    """

    __slots__ = ("_answered", "_asked", "_number", "_repeat_at", "_repeat_s", "_waiting")

    def __init__(self, first_number: int, repeat_s: float) -> None:
        # Numbers used before a restart must never be used again: a late answer to one of them
        # would confirm a read that began after it.
        self._number = first_number
        self._repeat_s = repeat_s
        self._repeat_at = float("inf")
        self._waiting: deque[_Waiting] = deque()
        self._asked: tuple[str, int] | None = None  # leader and term of the open question
        self._answered = first_number

    def add(self, ticket: int) -> None:
        """Add a read, which waits for the next question."""
        self._waiting.append(_Waiting(ticket, self._number + 1))

    def question(self, leader: str | None, term: int, now: float) -> ReadRequest | None:
        """Return the question to send to the leader of this term now, if one is due."""
        if leader is None or not self._waiting:
            self._repeat_at = float("inf")
            self._asked = None
            return None
        open_question = self._asked == (leader, term) and self._answered < self._number
        if open_question and now < self._repeat_at:
            return None
        self._number += 1
        self._asked = (leader, term)
        self._repeat_at = now + self._repeat_s
        return ReadRequest(term, self._number)

    def answer(self, response: ReadResponse) -> list[ReadReady]:
        """Return the reads that an answer covers; none if the question was never asked."""
        if response.number > self._number:
            return []
        self._answered = max(self._answered, response.number)
        ready = []
        while self._waiting and self._waiting[0].number <= response.number:
            ready.append(ReadReady(self._waiting.popleft().ticket, response.index))
        return ready

    def drop(self, tickets: Container[int]) -> None:
        """Forget reads that were given up."""
        self._waiting = deque(read for read in self._waiting if read.ticket not in tickets)

    def take_all(self) -> list[int]:
        """Return and forget all waiting reads: this member leads now, and confirms them itself."""
        tickets = [read.ticket for read in self._waiting]
        self._waiting.clear()
        return tickets

    @property
    def next_deadline(self) -> float:
        """When to repeat the question."""
        return self._repeat_at if self._waiting else float("inf")


# The first number of a question is drawn from so many. A float between 0 and 1 has only 53 bits.
FIRST_NUMBERS = 2**52


class OpenReads:
    """The reads of this member's callers, in order of arrival. Each ends within `wait_s`."""

    __slots__ = ("_deadlines", "_new", "_open", "_wait_s")

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._new: list[int] = []
        self._open: set[int] = set()
        self._deadlines: deque[tuple[float, int]] = deque()

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def begin(self, ticket: int) -> None:
        """Add a read; its time runs from the next `stamp`."""
        self._new.append(ticket)
        self._open.add(ticket)

    def stamp(self, since: float) -> None:
        """Let the time limit of the reads that began since the last call run from `since`."""
        if self._new:
            self._deadlines.extend((since + self._wait_s, ticket) for ticket in self._new)
            self._new.clear()

    def finish(self, ticket: int) -> None:
        self._open.discard(ticket)

    def expire(self, now: float) -> list[int]:
        """Remove and return the reads whose time is over."""
        expired = []
        while self.next_deadline <= now:
            _, ticket = self._deadlines.popleft()
            self._open.remove(ticket)
            expired.append(ticket)
        return expired

    @property
    def next_deadline(self) -> float:
        """When the next open read expires."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else float("inf")


class MemberReads:
    """Confirms reads: on a leader by a round of heartbeats or by lease, on others by asking the
    leader.

    Every read ends within `read_wait_s`: it becomes ready, or it is reported as lost. The time runs
    from the moment at which a new member may begin its group alone.

    Attributes:
        busy: whether a read is open. Then each turn visits the reads.
    """

    __slots__ = (
        "_agenda",
        "_config",
        "_forwarded",
        "_lost",
        "_open",
        "_outbox",
        "_patience",
        "_ready",
        "_state",
        "_view",
        "busy",
        "index",
        "lease",
    )

    def __init__(self, shared: SharedParts) -> None:
        self._config = shared.config
        self._agenda = shared.state.agenda
        self._state = shared.state
        self._view = shared.view
        self._outbox = shared.outbox
        self._patience = shared.patience
        self._open = OpenReads(shared.config.read_wait_s)
        # Random, so that a member does not reuse the numbers from before a restart.
        first_number = int(shared.random() * FIRST_NUMBERS)
        self._forwarded = ForwardedReads(first_number, shared.config.read_repeat_s)
        self._ready: list[ReadReady] = []
        self._lost: list[ReadLost] = []
        self.busy = False
        self.index: ReadIndex | None = None
        self.lease: LeaderLease | None = None

    # --- changes of role ----------------------------------------------------------------------

    def lead(self) -> None:
        quorum = self._state.membership.quorum
        self.index = ReadIndex(self._state.self_id, quorum)
        for ticket in self._forwarded.take_all():
            self.index.hold(ticket)
        drift = self._config.max_clock_drift
        if drift is not None:
            self.lease = LeaderLease(self._state.self_id, quorum, drift)

    def follow(self, membership: Membership) -> None:
        """Switch a leader's reads and lease to another configuration."""
        if self.index is not None:
            self.index.follow(membership.quorum, membership.members)
        if self.lease is not None:
            self.lease.follow(membership.quorum, membership.members)

    def stop_leading(self) -> None:
        """Stop leading: report the open reads as lost, and end the lease."""
        if self.index is not None:
            for ticket in self.index.take_all():
                self._open.finish(ticket)
                self._lost.append(ReadLost(ticket, stopped_leading=True))
                self._agenda.due |= TELL
        self.index = None
        self.lease = None

    # --- inputs -------------------------------------------------------------------------------

    def request(self, ticket: int) -> None:
        """Begin a read of this member's application."""
        self._is_busy()
        self._open.begin(ticket)
        if self.index is None:
            self._forwarded.add(ticket)
        else:
            self._begin(self.index, ticket)

    def begin_remote(self, peer: str, request: ReadRequest) -> None:
        """Begin a follower's read, if this member leads."""
        if self.index is not None:
            self._is_busy()
            self._begin(self.index, RemoteRead(peer, request.number))

    def _is_busy(self) -> None:
        self.busy = True
        self._agenda.due |= CONFIRM

    def _begin(self, index: ReadIndex, ticket: int | RemoteRead) -> None:
        if self.commits_in_own_term:
            index.add(ticket, self._state.committed)
        else:
            index.hold(ticket)

    @property
    def commits_in_own_term(self) -> bool:
        """Whether this leader has committed an entry of its own term. If so, its commit index is at
        least as high as any predecessor's ever was.
        """
        return self._view.term_at(self._state.committed) == self._state.term

    def committed(self) -> None:
        """Begin the held reads, because this leader committed an entry of its own term."""
        if self.index is not None:
            self.index.release_held(self._state.committed)

    def answered(self, response: ReadResponse) -> None:
        """Finish the reads that a leader's answer covers."""
        self._finish(self._forwarded.answer(response))

    def confirm(self, voter: str, response: HeartbeatResponse) -> None:
        """Note that `voter` answered a heartbeat of this leader."""
        if self.index is not None:
            self.index.confirm(voter, response.round)
        if self.lease is not None:
            self.lease.confirm(voter, response.round, response.promised_ms)

    def expire(self, now: float) -> None:
        """Give up the reads whose time is over."""
        if not self.busy:
            return
        expired = self._open.expire(now)
        if not expired:
            return
        gone = set(expired)
        self._forwarded.drop(gone)
        if self.index is not None:
            self.index.drop(gone)
        self._lost += map(ReadLost, expired)
        self._agenda.due |= CONFIRM | TELL

    # --- outputs ------------------------------------------------------------------------------

    def next_round(self, now: float) -> int:
        """Begin a round of heartbeats; return its number, or 0 on a member that does not lead."""
        if self.index is None:
            return 0
        number = self.index.next_round()
        if self.lease is not None:
            self.lease.sent(number, self._patience.true(now))
        return number

    def pursue(self, broadcast: Callable[[float], int], now: float, begins_at: float = 0.0) -> None:
        """Confirm open reads as far as possible, and answer those of followers.

        `broadcast` sends a round of heartbeats. The time limit of new reads runs from `begins_at`
        at the earliest, because no leader can answer before.
        """
        self._pursue(broadcast, now, begins_at)
        self.busy = self._open.has_open or (self.index is not None and self.index.has_open)
        if self.busy:
            self._agenda.later |= CONFIRM
            self._agenda.wake_by(self.next_deadline)

    def _pursue(self, broadcast: Callable[[float], int], now: float, begins_at: float) -> None:
        state = self._state
        self._open.stamp(max(now, begins_at))
        if self.index is None:
            question = self._forwarded.question(state.leader, state.term, now)
            if state.leader is not None and question is not None:
                self._outbox.promise(state.leader, question)
            return
        if self.lease is not None and self.lease.holds(self._patience.true(now)):
            self._finish(self.index.take_by_lease())
        if self.index.needs_round:
            broadcast(now)
        self._finish(self.index.take_ready())
        for read, index in self.index.take_remote_ready():
            self._outbox.send(read.peer, ReadResponse(state.term, read.number, index))

    def take_outcomes(self) -> tuple[list[ReadReady], list[ReadLost]]:
        """Return this member's reads that may be served, and those that are lost, each once."""
        ready, self._ready = self._ready, []
        lost, self._lost = self._lost, []
        return ready, lost

    @property
    def next_deadline(self) -> float:
        """When a read expires or a question is repeated."""
        if not self.busy:
            return float("inf")
        return min(self._open.next_deadline, self._forwarded.next_deadline)

    def _finish(self, ready: list[ReadReady]) -> None:
        """Report reads as ready. Each may still expire until its index is applied."""
        for read in ready:
            if read.index <= self._state.applied:
                self._open.finish(read.ticket)
        if ready:
            self._ready += ready
            self._agenda.due |= TELL
