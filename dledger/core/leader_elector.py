"""Who may lead: timers, pre-votes, votes, and the leader's check that a quorum still hears it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role
from dledger.core.membership.quorum import VoteOutcome
from dledger.core.messages import VoteRequest, VoteResponse
from dledger.core.replica_config import ReplicaConfig
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import LeaderKept

_NEVER = float("-inf")

# A state machine folds so many entries in a few tenths of a second, which is what waiting for
# another member to stand costs. A member that has just started over a long log has millions.
MUCH_TO_APPLY_ENTRIES = 50_000

# The first one waits for so long, as a share of the election timeout: 10 ms of 500. The others are
# to have learnt by then that the leader is gone, or they refuse.
FIRST_TURN = 0.02
# So long is a turn: 25 ms of 500. Asking, being answered, and syncing two votes fit into it.
TURN = 0.05

# A member that grants a pre-vote does not ask itself for so long, as a share of the election
# timeout: 100 ms of 500. The candidate's round of votes, with its sync, fits into it.
GRANTED_WAIT = 0.2


class EarlyTurns(NamedTuple):
    """When one member asks for votes early, once the process of its leader has ended. In seconds.

    All members learn of it within milliseconds, so chance alone would have two of them stand at
    once. They take turns instead, in the order of their names from the lost leader's on, which all
    of them know: a split vote costs an election timeout.
    """

    first_s: float  # from the moment when it learnt of the end
    round_s: float  # from then on, from one time to the next

    @classmethod
    def of(
        cls, member: str, leader: str, voters: Collection[str], timeout_s: float, spread: int = 0
    ) -> EarlyTurns:
        """The turns of `member`, one of the `voters`, which lost that leader.

        Groups with different `spread` begin with different members: one that takes over from a
        process which led many groups does not lead all of them.
        """
        order = sorted(voters)
        at = order.index(leader) if leader in voters else len(order)
        others = order[at + 1 :] + order[:at]
        place = (others.index(member) - spread) % len(others)
        turn_s = TURN * timeout_s
        return cls(FIRST_TURN * timeout_s + place * turn_s, len(order) * turn_s)


class LeaderElector:
    """One member's part in elections.

    A member that heard a leader within the shortest election timeout grants no vote and no
    pre-vote (thesis 4.2.3), so a member that was cut off cannot depose a working leader.

    With lease reads on, that is a promise to leaders, which serve reads by it (thesis 6.4.1): no
    restart and no news of another term takes it back. Only a candidate whom its leader told to
    stand is exempt, because that leader has given up its lease.

    Attributes:
        deadline: when this member stands, unless a leader is heard before.
        early_until: until then it asks for pre-votes again and again, because the process of its
            leader has ended; minus infinity at other times.
    """

    __slots__ = (
        "_asks",
        "_gave_way",
        "_granted",
        "_handed_over",
        "_promises",
        "_random",
        "_spread",
        "_state",
        "_turns",
        "_view",
        "_waits",
        "deadline",
        "early_until",
        "last_leader_contact",
        "timeout_s",
    )

    def __init__(
        self,
        state: MemberState,
        view: LedgerView,
        config: ReplicaConfig,
        random: Callable[[], float],
        now: float,
    ) -> None:
        self._state = state
        self._view = view
        self._random = random
        self._granted: dict[str, bool] = {}
        self._asks = False
        self._gave_way = False
        self._handed_over = False
        self._waits = False  # for a candidate that it granted a pre-vote, since its timer was set
        self._promises = config.max_clock_drift is not None
        self._spread = config.early_spread
        self.timeout_s = config.election_timeout_s
        # What an earlier life of this process promised is forgotten, but not over.
        self.last_leader_contact = now if self._promises else _NEVER
        self.early_until = _NEVER
        self._turns = EarlyTurns(0.0, 0.0)
        if self.is_alone:
            self.stand_alone(now)
        else:
            self.postpone(now)

    @property
    def is_alone(self) -> bool:
        """Whether this member is the only voter of its group: it has nobody to wait for."""
        return self._state.membership.voting_members == {self._state.self_id}

    def stand_alone(self, now: float) -> None:
        """As the only voter, stand as soon as it may: at once, unless there were others once.

        One of those may still serve reads by this member's promise: a leader that was removed, and
        waits to learn that the group knows. What an earlier life promised holds here too.
        """
        self.deadline = now
        if self._promises and self._state.membership.index > BEFORE_FIRST_INDEX:
            self.deadline = max(now, self.last_leader_contact + self.timeout_s)

    def postpone(self, now: float) -> None:
        """Wait a whole election timeout again: between one and two times the configured one, at
        random, so that members seldom stand at the same moment (Raft 5.2).
        """
        self.deadline = now + self.timeout_s * (1.0 + self._random())
        self.early_until = _NEVER
        self._waits = False

    def heard_leader(self, now: float) -> None:
        """The leader of this term spoke."""
        self.last_leader_contact = now
        self._gave_way = False
        self.postpone(now)

    def gives_way(self, now: float) -> bool:
        """Whether this member, whose turn it is to stand, leaves it to others and waits again.

        It does with much to apply: a leader serves once all is applied. But only once for each
        leader that is lost, as perhaps nobody else can stand.
        """
        if self._view.last_index - self._state.applied <= MUCH_TO_APPLY_ENTRIES:
            return False
        if now < self.early_until:
            self._await_next_turn(now)
            return True
        if self._gave_way or self.is_alone:
            return False
        self._gave_way = True
        self.postpone(now)
        return True

    def follows_a_leader(self, now: float) -> bool:
        """Whether a working leader is known, or is this member."""
        if self._state.role is Role.LEADER:
            return True
        if self._state.leader is None and not self._promises:
            return False
        return now - self.last_leader_contact < self.timeout_s

    @property
    def promised_ms(self) -> int:
        """What a heartbeat may be answered with: how long no other candidate gets a vote."""
        return int(self.timeout_s * 1000) if self._promises and self._state.proven else 0

    def forget_leader(self) -> None:
        """Take the leader for lost, because something outside knows so: this member votes for
        another at once. A leader and a candidate ignore it; the next heartbeat undoes it.

        Raises LeaderKept with lease reads, whose point is that voters do not do this.
        """
        state = self._state
        if state.role is not Role.FOLLOWER or state.leader is None:
            return
        if self._promises:
            raise LeaderKept(state.leader)
        state.leader = None

    # --- an early election --------------------------------------------------------------------

    def leader_gone(self, leader: str, term: int, now: float) -> bool:
        """Take the leader of that term for lost, because its process has ended; whether this
        member believes it. It asks for pre-votes soon instead of when its timer fires, and answers
        as if it had never heard that leader. The next word of the leader undoes it.

        It only begins a pre-vote: who still hears the leader refuses, so a member that is wrong
        deposes nobody. With lease reads it is not believed: until the election timeout is over
        the leader may serve reads by this member's promise, and no sign tells for certain that it
        does not.
        """
        state = self._state
        follows = state.role is Role.FOLLOWER and (state.leader, state.term) == (leader, term)
        if not follows or self._promises:
            return False
        state.leader = None
        if state.votes:
            voters = state.membership.voting_members
            self._turns = EarlyTurns.of(state.self_id, leader, voters, self.timeout_s, self._spread)
            self.early_until = self.deadline
            self.deadline = min(self.deadline, now + self._turns.first_s)
        return True

    def asked(self, now: float) -> None:
        """This member asks for pre-votes now. When it does so again, if it must: at its next turn
        as long as an early election is on, else after a whole timeout.
        """
        if now < self.early_until:
            self._await_next_turn(now)
        else:
            self.postpone(now)

    def _await_next_turn(self, now: float) -> None:
        self.deadline = min(now + self._turns.round_s, self.early_until)

    # --- standing -----------------------------------------------------------------------------

    def start_round(self, *, handed_over: bool = False) -> None:
        """Forget the answers to the last round of questions."""
        self._granted.clear()
        self._asks = True
        self._handed_over = handed_over

    def end_round(self) -> None:
        """Count on no answer to the last round of questions any more, however late it comes."""
        self._granted.clear()
        self._asks = False

    def request(self, *, pre: bool) -> VoteRequest:
        """What to ask the others."""
        term = self._state.term + 1 if pre else self._state.term
        handed_over = self._handed_over and not pre
        return VoteRequest(term, self._view.last_index, self._view.last_term, pre, handed_over)

    def count(self, voter: str, granted: bool) -> None:
        """Note one answer of this round, by voter: an answer that comes again counts once."""
        if self._asks:
            self._granted[voter] = granted or self._granted.get(voter, False)

    @property
    def won(self) -> bool:
        """Whether a quorum said yes: of both halves, while a change is under way."""
        return self._state.membership.quorum.outcome(self._granted) is VoteOutcome.WON

    # --- voting -------------------------------------------------------------------------------

    def log_is_current(self, request: VoteRequest) -> bool:
        """Whether the candidate's log is at least as complete as ours (Raft 5.4.1)."""
        if not self._state.proven and self._state.sole_other is not None:
            return True  # the only other voter has all that is committed: what it lacks is not
        ours = (self._view.last_term, self._view.last_index)
        return (request.last_term, request.last_index) >= ours

    def pre_vote(self, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        """Would we vote for this candidate? Promises nothing.

        Of two members that ask at the same time one goes on. If both stood, each would keep its
        own vote, and where the group needs every voter that is left, neither could win: that costs
        another election timeout. Each answers the other only after its own question, so a member
        that needs the other's answer learns in time that it asks as well.
        """
        granted = (
            (self._state.proven or self._state.sole_other is not None)
            and request.term > self._state.term
            and self.log_is_current(request)
            and not self.follows_a_leader(now)
        )
        if not granted:
            return self._refusal(request)
        if now < self.early_until:
            # Somebody's turn has come: not to cross it, this member misses its own once. If it has
            # just asked as well, it counts on no answer to that: two that stand in one term cost
            # a whole election timeout, another turn a fraction of one.
            self.end_round()
            self.deadline = min(now + self._turns.round_s + self._turns.first_s, self.early_until)
        else:
            # A member that has not asked yet lets the candidate finish; but one candidate only, or
            # members that cannot win could keep it from standing.
            if not self._waits:
                self._waits = True
                self.deadline = max(self.deadline, now + GRANTED_WAIT * self.timeout_s)
            if self._state.role is Role.PRE_CANDIDATE and self._goes_first(candidate, request):
                self.end_round()
        return VoteResponse(request.term, granted, pre=True)

    def _goes_first(self, candidate: str, request: VoteRequest) -> bool:
        """Whether a candidate whose log is at least as complete as ours stands rather than we."""
        ours = (self._view.last_term, self._view.last_index)
        return (request.last_term, request.last_index) > ours or candidate < self._state.self_id

    def vote(self, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        """Vote in the present term, at most once, never for a log less complete than ours."""
        granted = (
            (self._state.proven or self._state.sole_other == candidate)
            and request.term == self._state.term
            and self._state.voted_for in (None, candidate)
            and self._state.leader is None
            and self.log_is_current(request)
            and (request.handed_over or not self.follows_a_leader(now))
        )
        if not granted:
            return self._refusal(request)
        self._state.vote(candidate)
        self.postpone(now)
        return VoteResponse(self._state.term, granted, pre=False)

    def _refusal(self, request: VoteRequest) -> VoteResponse:
        # The latest committed entry that the candidate can have: it may not know that it is.
        committed = min(self._state.committed, request.last_index)
        term = self._view.term_at(committed)
        return VoteResponse(self._state.term, False, request.pre, committed, term)

    # --- leading ------------------------------------------------------------------------------

    def quorum_heard_at(self, answers: dict[str, float], now: float) -> float:
        """The latest moment by which a quorum (this member included) had answered."""
        answers[self._state.self_id] = now
        return self._state.membership.quorum.reached(answers, float("-inf"))
