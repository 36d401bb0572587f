"""A member's part in elections: timers, pre-votes, votes, and changes of role and term."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dledger.core.entry_handler import EntryHandler
from dledger.core.leadership import Leadership
from dledger.core.member_state import Role, RoleEvent
from dledger.core.membership.quorum import VoteOutcome
from dledger.core.messages import VoteRequest, VoteResponse
from dledger.core.shared_parts import SharedParts
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import LeaderKept

_NEVER = float("-inf")

# A member with more entries to apply than this lets another member stand first. A state machine
# applies so many in a few tenths of a second, and waiting for another member to stand costs as
# much. A member that has just started with a long log has millions to apply.
MUCH_TO_APPLY_ENTRIES = 50_000

# The wait before the first turn, as a share of the election timeout: 10 ms of 500. By then the
# other members must have learnt that the leader is gone, or they refuse.
FIRST_TURN = 0.02
# The length of a turn, as a share of the election timeout: 25 ms of 500. It is enough to ask, to
# receive the answers, and to sync two votes.
TURN = 0.05

# A member that grants a pre-vote does not ask for votes itself for this share of the election
# timeout: 100 ms of 500. The candidate's round of votes, with its sync, fits into it.
GRANTED_WAIT = 0.2


class EarlyTurns(NamedTuple):
    """When one member asks for votes early after its leader's process has ended. In seconds.

    All members learn of the end within milliseconds, so two members might stand at once, and a
    split vote costs an election timeout. Therefore they take turns in the order of their names,
    beginning after the lost leader's name. All of them know this order.
    """

    first_s: float  # from the moment when the member learnt of the end
    round_s: float  # from one of its turns to the next

    @classmethod
    def of(
        cls, member: str, leader: str, voters: Collection[str], timeout_s: float, spread: int = 0
    ) -> EarlyTurns:
        """Return the turns of `member`, one of the `voters`, after the loss of `leader`.

        Groups with different `spread` begin with different members. So when a process that led many
        groups ends, one process does not become the leader of all of them.
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

    With lease reads on, this rule is a promise to leaders, which serve reads by it (thesis 6.4.1):
    neither a restart nor a message of another term ends it. Only a candidate that its leader told
    to stand is exempt, because that leader has given up its lease.

    Attributes:
        leadership: begins when this member is elected. Set after both were made.
        deadline: when this member stands, unless it hears a leader before.
        early_until: until then it repeatedly asks for pre-votes, because the process of its leader
            has ended, or its group has just begun; minus infinity at other times.
    """

    __slots__ = (
        "_agenda",
        "_asks",
        "_gave_way",
        "_granted",
        "_handed_over",
        "_handler",
        "_outbox",
        "_promises",
        "_random",
        "_reached",
        "_spread",
        "_starts",
        "_state",
        "_turns",
        "_view",
        "_waits",
        "deadline",
        "early_until",
        "last_leader_contact",
        "leadership",
        "timeout_s",
    )

    leadership: Leadership

    def __init__(self, shared: SharedParts, handler: EntryHandler, now: float) -> None:
        config = shared.config
        self._state = shared.state
        self._view = shared.view
        self._outbox = shared.outbox
        self._random = shared.random
        self._handler = handler
        self._agenda = shared.state.agenda
        self._granted: dict[str, bool] = {}
        self._asks = False
        self._gave_way = False
        self._handed_over = False
        self._waits = False  # whether it granted a pre-vote, and waits for that candidate
        self._promises = config.max_clock_drift is not None
        self._starts = not self._promises  # until a quorum is reached, or a leader heard
        self._reached: set[str] = set()
        self._spread = config.early_spread
        self.timeout_s = config.election_timeout_s
        # A promise of this process before its restart is forgotten, but still holds.
        self.last_leader_contact = now if self._promises else _NEVER
        self.early_until = _NEVER
        self._turns = EarlyTurns(0.0, 0.0)
        if self.is_alone:
            self.stand_alone(now)
        else:
            self.postpone(now)

    @property
    def is_alone(self) -> bool:
        """Whether this member is the only voter of its group."""
        return self._state.membership.voting_members == {self._state.self_id}

    def stand_alone(self, now: float) -> None:
        """Set the timer of a member that is the only voter: it stands at once, unless the group had
        other voters before.

        One of those may be a removed leader that waits until the group knows of its removal. It may
        still serve reads by this member's promise, even by a promise given before a restart.
        """
        at = now
        if self._promises and self._state.membership.index > BEFORE_FIRST_INDEX:
            at = max(now, self.last_leader_contact + self.timeout_s)
        self._stand_at(at)

    def _stand_at(self, at: float) -> None:
        self.deadline = at
        self._agenda.wakes_at = min(self._agenda.wakes_at, at)  # spares a call, with each push

    def postpone(self, now: float) -> None:
        """Restart the election timer with a random time of one to two election timeouts, so that
        members seldom stand at the same moment (Raft 5.2).
        """
        self._stand_at(now + self.timeout_s * (1.0 + self._random()))
        self.early_until = _NEVER
        self._waits = False

    def heard_leader(self, now: float) -> None:
        self.last_leader_contact = now
        self._gave_way = self._starts = False
        self.postpone(now)

    def gives_way(self, now: float) -> bool:
        """Return whether this member, whose timer fired, waits again so that another member stands
        first.

        It does if it has much to apply, because a leader serves only once it has applied
        everything. It waits only once per lost leader, as perhaps no other member can stand.
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
        """Return whether this member leads, or knows a working leader."""
        if self._state.role is Role.LEADER:
            return True
        if self._state.leader is None and not self._promises:
            return False
        return now - self.last_leader_contact < self.timeout_s

    @property
    def promised_ms(self) -> int:
        """How long this member promises a leader to vote for no other candidate; 0: no promise."""
        return int(self.timeout_s * 1000) if self._promises and self._state.proven else 0

    def forget_leader(self) -> None:
        """Treat the leader as lost on the word of the caller, so that this member votes for another
        at once. A leader and a candidate ignore the call; the next heartbeat undoes it.

        Raises LeaderKept with lease reads, because a leader's lease relies on voters not doing so.
        """
        state = self._state
        if state.role is not Role.FOLLOWER or state.leader is None:
            return
        if self._promises:
            raise LeaderKept(state.leader)
        state.follow(None)

    # --- role and term ------------------------------------------------------------------------

    def follow_term(self, term: int, now: float) -> None:
        self.change_role(RoleEvent.HIGHER_TERM, now)
        self._enter_term(term, voted_for=None)

    def change_role(self, event: RoleEvent, now: float) -> None:
        """Make the transition that ROLE_CHANGES names. Raises InvariantBroken if it names none."""
        was_leader = self._state.role is Role.LEADER
        self._state.change(event)
        if was_leader and self._state.role is not Role.LEADER:
            self.leadership.end()
            self.postpone(now)

    def _enter_term(self, term: int, voted_for: str | None) -> None:
        self._state.enter_term(term, voted_for=voted_for)
        self._outbox.forget_promises()
        self._handler.enter_term()

    # --- an early election --------------------------------------------------------------------

    def leader_gone(self, leader: str, term: int, now: float) -> bool:
        """Treat the leader of `term` as lost, because its process seems to have ended; return
        whether this member believes it. If so, it asks for pre-votes soon instead of when its timer
        fires, and answers as if it had never heard that leader. The leader's next message undoes
        this.

        It only begins a pre-vote. Members that still hear the leader refuse, so a wrong report
        deposes no leader. With lease reads this member does not believe the report: until the
        election timeout is over the leader may serve reads by this member's promise, and no sign
        proves that it does not.
        """
        state = self._state
        follows = state.role is Role.FOLLOWER and (state.leader, state.term) == (leader, term)
        if not follows or self._promises:
            return False
        state.follow(None)
        if state.votes:
            voters = state.membership.voting_members
            self._turns = EarlyTurns.of(state.self_id, leader, voters, self.timeout_s, self._spread)
            self.early_until = self.deadline
            self._stand_at(min(self.deadline, now + self._turns.first_s))
        return True

    def stand_first(self, now: float) -> None:
        """Take turns at once in a new group that has had no leader yet, instead of waiting for the
        timer.

        It only begins a pre-vote; votes follow the ordinary rules.
        """
        state = self._state
        begins = state.role is Role.FOLLOWER and state.leader is None and state.term == 0
        if not (begins and state.votes):
            return
        self.early_until = self.deadline
        self._take_turns(now)

    def reachable(self, peer: str, now: float) -> None:
        """Note that a connection to `peer` opened. The first time since its start that a member
        reaches a quorum, and has heard no leader, it takes turns at once, for an election timeout.

        So a group whose members all ended has a leader as soon as a quorum of them runs. This only
        begins a pre-vote: members that hear a leader refuse. With lease reads the member waits,
        because a leader may rely on a promise from before the start.
        """
        if not self._starts:
            return
        self._reached.add(peer)
        state = self._state
        granted = dict.fromkeys((*self._reached, state.self_id), True)
        if state.membership.quorum.outcome(granted) is not VoteOutcome.WON:
            return
        self._starts = False
        waits = state.role in (Role.FOLLOWER, Role.PRE_CANDIDATE) and state.leader is None
        if waits and state.votes and state.term > 0:  # in a new group see `stand_first`
            self.early_until = now + self.timeout_s
            self._take_turns(now)

    def unreachable(self, peer: str) -> None:
        self._reached.discard(peer)

    def _take_turns(self, now: float) -> None:
        """Take turns from now on. No leader was lost, so the turns begin with the first name."""
        state = self._state
        voters = state.membership.voting_members
        self._turns = EarlyTurns.of(state.self_id, "", voters, self.timeout_s, self._spread)
        self._stand_at(min(self.deadline, now + self._turns.first_s))

    def _await_next_turn(self, now: float) -> None:
        self._stand_at(min(now + self._turns.round_s, self.early_until))

    # --- standing -----------------------------------------------------------------------------

    def campaign(self, now: float) -> None:
        """Ask for pre-votes, because the election timer fired."""
        self.change_role(RoleEvent.ELECTION_TIMEOUT, now)
        self._state.follow(None)
        if now < self.early_until:
            self._await_next_turn(now)
        else:
            self.postpone(now)
        self.start_round()
        self._ask_for_votes(pre=True)
        self.count(self._state.self_id, granted=True)
        self._count_votes(now)

    def stand(self, event: RoleEvent, now: float) -> None:
        """Ask for votes in a new term, with this member's own vote."""
        self.change_role(event, now)
        self._enter_term(self._state.term + 1, voted_for=self._state.self_id)
        self.postpone(now)
        self.start_round(handed_over=event is RoleEvent.HANDED_OVER)
        self._ask_for_votes(pre=False)

    def count_own_vote(self, now: float) -> None:
        """Count a candidate's vote for itself, which is durable now."""
        if self._state.role is Role.CANDIDATE:
            self.count(self._state.self_id, granted=True)
            self._count_votes(now)

    def _ask_for_votes(self, *, pre: bool) -> None:
        request = self.request(pre=pre)
        for peer in self._state.other_voters:
            if pre:
                self._outbox.send(peer, request)
            else:
                # The request waits until the candidate's own vote is durable. Otherwise a candidate
                # that crashes could stand in the same term again with a shorter log, and count the
                # answers that were given to the longer one.
                self._outbox.promise(peer, request)

    def _count_votes(self, now: float) -> None:
        if self._state.role is Role.PRE_CANDIDATE and self.won:
            self.stand(RoleEvent.PRE_VOTES_WON, now)
        elif self._state.role is Role.CANDIDATE and self.won:
            self._state.change(RoleEvent.VOTES_WON)
            self._state.follow(self._state.self_id)
            self.leadership.begin(now)

    def start_round(self, *, handed_over: bool = False) -> None:
        """Begin a new round of questions, and forget the answers to the last one."""
        self._granted.clear()
        self._asks = True
        self._handed_over = handed_over

    def end_round(self) -> None:
        """Ignore further answers to the last round of questions."""
        self._granted.clear()
        self._asks = False

    def request(self, *, pre: bool) -> VoteRequest:
        """Return the request to send to the other voters."""
        term = self._state.term + 1 if pre else self._state.term
        handed_over = self._handed_over and not pre
        return VoteRequest(term, self._view.last_index, self._view.last_term, pre, handed_over)

    def count(self, voter: str, granted: bool) -> None:
        """Note one voter's answer in this round; a repeated answer counts once."""
        if self._asks:
            self._granted[voter] = granted or self._granted.get(voter, False)

    @property
    def won(self) -> bool:
        """Whether a quorum granted; in a joint configuration, a majority of each half."""
        return self._state.membership.quorum.outcome(self._granted) is VoteOutcome.WON

    # --- voting -------------------------------------------------------------------------------

    def receive_request(self, sender: str, request: VoteRequest, now: float) -> None:
        if request.pre:
            self._outbox.send(sender, self.pre_vote(sender, request, now))
            return
        spared = self.follows_a_leader(now) and not request.handed_over
        if request.term > self._state.term and not spared:
            self.follow_term(request.term, now)
        self._outbox.promise(sender, self.vote(sender, request, now))

    def receive_response(self, sender: str, response: VoteResponse, now: float) -> None:
        self._learn_committed(response)
        if response.pre:
            wanted = self._state.role is Role.PRE_CANDIDATE and (
                not response.granted or response.term == self._state.term + 1
            )
        else:
            wanted = self._state.role is Role.CANDIDATE and response.term == self._state.term
        if wanted:
            self.count(sender, response.granted)
            self._count_votes(now)

    def _learn_committed(self, response: VoteResponse) -> None:
        """Commit what a voter knows to be committed, if this log has that entry (log matching)."""
        known = response.committed_term
        if known == NO_TERM or self._view.term_at(response.committed) != known:
            return
        if self._state.role is Role.LEADER:
            return  # a late answer: a leader commits by counting acknowledgements
        before = self._state.membership.index
        self._handler.learn_committed(response.committed)
        if self._state.membership.index != before:
            self.end_round()  # the voters have changed: the next round asks the new ones

    def log_is_current(self, request: VoteRequest) -> bool:
        """Return whether the candidate's log is at least as complete as ours (Raft 5.4.1)."""
        if not self._state.proven and self._state.sole_other is not None:
            return True  # the only other voter has every committed entry, so its log is complete
        ours = (self._view.last_term, self._view.last_index)
        return (request.last_term, request.last_index) >= ours

    def pre_vote(self, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        """Answer whether this member would vote for the candidate. Promises nothing.

        If two members ask at the same time, only one of them goes on. If both stood, each would
        vote for itself. Where the group needs every remaining voter, neither could win, which costs
        another election timeout. Each answers the other only after its own question, so a member
        that needs the other's answer learns in time that the other asks as well.
        """
        granted = (
            (self._state.proven or self._state.sole_other is not None)
            and not self._state.recalls
            and request.term > self._state.term
            and self.log_is_current(request)
            and not self.follows_a_leader(now)
        )
        if not granted:
            return self._refusal(request)
        if now < self.early_until:
            # It is the candidate's turn, so this member skips its own turn once. If it has just
            # asked as well, it ignores the answers: two candidates in one term cost a whole
            # election timeout, another turn a fraction of one.
            self.end_round()
            turn_at = now + self._turns.round_s + self._turns.first_s
            self._stand_at(min(turn_at, self.early_until))
        else:
            # Wait for this candidate to finish. Wait for one candidate only, or candidates that
            # cannot win could keep this member from standing.
            if not self._waits:
                self._waits = True
                self._stand_at(max(self.deadline, now + GRANTED_WAIT * self.timeout_s))
            if self._state.role is Role.PRE_CANDIDATE and self._goes_first(candidate, request):
                self.end_round()
        return VoteResponse(request.term, granted, pre=True)

    def _goes_first(self, candidate: str, request: VoteRequest) -> bool:
        """Return whether a candidate with a log as complete as ours stands before us."""
        ours = (self._view.last_term, self._view.last_index)
        return (request.last_term, request.last_index) > ours or candidate < self._state.self_id

    def vote(self, candidate: str, request: VoteRequest, now: float) -> VoteResponse:
        """Vote in the present term, at most once, never for a log less complete than ours."""
        granted = (
            (self._state.proven or self._state.sole_other == candidate)
            and not self._state.recalls
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
        # The latest committed entry that the candidate may have without knowing it is committed.
        committed = min(self._state.committed, request.last_index)
        term = self._view.term_at(committed)
        return VoteResponse(self._state.term, False, request.pre, committed, term)


def is_granted_pre_vote(message: object) -> bool:
    """Return whether the message is a granted pre-vote. It carries the requested term, which no
    member has entered yet.
    """
    return isinstance(message, VoteResponse) and message.pre and message.granted
