"""The gate before voting: a member whose folder may have lost promises must prove itself first.

An emptied folder looks like a new one. Its member may have voted in a term that it does not
remember, and may have acknowledged entries that it no longer has. Such a member is in doubt. It
grants no vote and no pre-vote and does not stand, and none of its answers counts toward a commit, a
read or a lease. It follows, stores and applies like any other member.

One of these proves it (docs/failures.md has the argument for each):

- *New group.* Its own record is empty, and it may begin the group, because it is told so or because
  the others answer so: `dledger.core.admission.beginning`.
- *A commit after its question.* A leader received the question, then appended an entry, and
  committed it. Only proven members count toward that commit, so a quorum of them holds an entry
  that no member had before this member lost data. So no candidate that counts on a forgotten vote
  can win any more. This member holds that entry too, and with it everything that it can ever have
  acknowledged. A member that joins a group is always proven like this, because it may have been a
  member before its folder was emptied.
- *The log of the only other voter.* In a group of two, no entry is committed without this member,
  so it cannot wait for a commit. But the other voter has every committed entry, and no leader was
  elected without that voter's vote. So this member votes for the other voter only. It is proven
  once it holds the log that the other voter had when, as leader, it received the question.

In the last two cases this member first uses up its vote in that leader's term, durably. Answers
count only under the number drawn at this start of the process, so no answer from before the loss
counts.

A new group whose voters have all been proven as new need not wait for an election timer: no leader
exists yet. So a member of a new group goes on asking until all of them are proven, for an election
timeout, and reports that once. An election before that moment could leave a voter in doubt, because
a group that has voted is no longer new.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.admission.beginning import Beginning, Hold
from dledger.core.admission.standing import Forgotten, Standing, Told
from dledger.core.agenda import ASK, TELL, TICK, WRITE
from dledger.core.member_state import Role
from dledger.core.messages import Inquiry, InquiryAnswer
from dledger.core.shared_parts import SharedParts

# The number of a question is drawn from so many. A float between 0 and 1 has only 53 bits.
_NUMBERS = 2**52
# How long a proven member of a new group waits before it asks again whether the others are proven
# as well, as a share of the election timeout: 10 ms of 500.
BIRTH_REPEAT = 0.02


class _Goal(NamedTuple):
    """The entry that the leader of `term` appended after it received the question."""

    leader: str
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index


class Admission:
    """One member's standing, and the questions and answers that prove it. Times in seconds.

    A member in doubt asks the voters of the configuration that it was started with, the voters of
    the one in its log, and the leader. A member that joins a group knows no other member until a
    leader calls.

    `forgotten` is what this member lost, as another member told it. It is kept when the member is
    proven again.
    """

    __slots__ = (
        "_answers",
        "_ask_at",
        "_awaited",
        "_awaits_until",
        "_beginning",
        "_floor",
        "_goal",
        "_may_hurry",
        "_number",
        "_random",
        "_repeat_s",
        "_standing",
        "_state",
        "_timeout_s",
        "_told",
        "_view",
        "_voters",
        "forgotten",
    )

    def __init__(self, shared: SharedParts, standing: Standing, now: float) -> None:
        config = shared.config
        self._state = shared.state
        self._view = shared.view
        self._voters = config.began_with.voting_members
        self._beginning = Beginning(shared, now)
        self._random = shared.random  # draws the number of this process's questions
        self._repeat_s = config.heartbeat_interval_s
        self._timeout_s = config.election_timeout_s
        # With lease reads the others would refuse: they count a promise from before their start.
        self._may_hurry = config.max_clock_drift is None
        self.forgotten: Forgotten | None = None
        self._told: dict[str, tuple[int, int]] = {}  # as a leader: number and log's end, by asker
        self._begin(standing, now)

    def _begin(self, standing: Standing, now: float) -> None:
        self._standing = standing
        self._prove(standing is Standing.PROVEN)
        self._state.sole_other = None
        self._number = 0 if self._state.proven else self.draw_number()
        self._answers: dict[str, InquiryAnswer] = {}
        self._goal: _Goal | None = None
        self._floor: int | None = None  # proven once its votes up to this term are used up
        # Voters of a new group not yet known to be proven; None: this member does not wait for any.
        self._awaited: set[str] | None = None
        self._awaits_until = now
        self._ask(now)

    def _prove(self, proven: bool) -> None:
        """Note whether this member is proven, and have its standing written."""
        self._state.proven = proven
        self._state.agenda.due |= TICK | WRITE | TELL

    def _ask(self, now: float) -> None:
        """Ask at once."""
        self._ask_at = now
        self._state.agenda.due |= ASK

    def begins_at(self, now: float) -> float:
        """Return when this member may begin its group alone; `now` if it does not wait for that."""
        if self._state.proven or not self._beginning.is_new(self._standing):
            return now
        return self._beginning.alone_at(now)

    def draw_number(self) -> int:
        return int(self._random() * _NUMBERS)

    # --- this member is in doubt --------------------------------------------------------------

    def doubt(self, now: float, forgotten: Forgotten) -> None:
        """Put this member in doubt, because it lost entries or votes that it had promised."""
        self._begin(Standing.LOST, now)
        self.forgotten = forgotten

    def told_grown(self) -> None:
        """Note that the group has members besides its first voters: one of them called, or a note
        outside of the folder says so.
        """
        self._beginning.told = Told.GROWN
        self._state.agenda.due |= TELL

    def reachable(self, now: float) -> None:
        """Ask at once, because a member can be reached."""
        self._ask(now)

    def tick(self, durable_promise: tuple[int, str | None], now: float) -> None:
        """Check whether the proof is complete. `durable_promise` is the term and vote on disk."""
        state = self._state
        if state.proven:
            return
        if self._beginning.may_begin(self._standing, self._answers, now):
            self._prove(True)
            self._await_others(now)
            return
        if self._floor is None and self._goal is not None and self._holds(self._goal):
            self._floor = state.term
        if self._floor is None:
            return
        if state.term == self._floor and state.voted_for is None and self._goal is not None:
            state.vote(self._goal.leader)
        term, vote = durable_promise
        if term > self._floor or (term == self._floor and vote is not None):
            self._prove(True)

    def _await_others(self, now: float) -> None:
        """Find out when all voters of this new group are proven."""
        if self._may_hurry and self._other_voters:
            known = {name for name, answer in self._answers.items() if answer.proven}
            self._awaited = set(self._other_voters - known)
            self._awaits_until = now + self._timeout_s
            self._ask(now)

    def take_birth(self) -> bool:
        """Return whether all voters of this new group are proven now; True once."""
        if self._awaited is None or self._awaited:
            return False
        self._awaited = None
        return True

    def answered(self, sender: str, answer: InquiryAnswer) -> None:
        """Handle another member's answer. Only answers to questions of this process count."""
        if answer.number != self._number:
            return
        self._state.agenda.due |= TICK | ASK | TELL
        if self._state.proven:
            self._answered_as_proven(sender, answer)
            return
        if answer.leads and answer.term == self._state.term:
            self._goal = _Goal(sender, answer.term, answer.last_index + 1)
        if sender not in self._voters:
            return  # it joined later: it counts only as leader
        self._answers[sender] = answer
        if answer.voters != 2 or self._voters != {sender, self._state.self_id}:
            self._state.sole_other = None
        elif answer.proven and not answer.is_new:
            self._state.sole_other = sender

    def _answered_as_proven(self, sender: str, answer: InquiryAnswer) -> None:
        if self._awaited is None:
            return
        if not (self.is_new and answer.is_new):
            self._awaited = None  # an election has begun
        elif answer.proven:
            self._awaited.discard(sender)

    def question(self, now: float) -> Inquiry | None:
        """Return the question to send to `asked_members` now, if one is due."""
        if now < self._ask_at or not self._asks:
            return None
        if self._state.proven:
            if now >= self._awaits_until:
                self._awaited = None  # the election timers decide
                return None
            self._ask_at = now + BIRTH_REPEAT * self._timeout_s
            return Inquiry(self._state.term, self._number)
        self._ask_at = min(now + self._repeat_s, self._beginning.next_look_at(now))
        return Inquiry(self._state.term, self._number)

    @property
    def next_deadline(self) -> float:
        """When the next question is due; infinity if none is."""
        if not self._asks:
            return float("inf")
        return self._ask_at

    @property
    def standing(self) -> Standing:
        """The standing that must be on disk before this turn's messages leave."""
        return Standing.PROVEN if self._state.proven else self._standing

    @property
    def is_new(self) -> bool:
        """Whether this member has never promised anything, as far as its folder can tell."""
        return self._beginning.is_new(self._standing)

    @property
    def is_fresh(self) -> bool:
        """Whether this member began with an empty folder, and is not known to have lost data."""
        return self._standing is Standing.FRESH

    @property
    def told_last_index(self) -> int:
        """The end of the longest log that another member has told of; -1 for none."""
        return max((answer.last_index for answer in self._answers.values()), default=-1)

    @property
    def lost(self) -> bool:
        """Whether this member is in doubt in a group that is not new."""
        if self._state.proven:
            return False
        return not self.is_new or not all(answer.is_new for answer in self._answers.values())

    @property
    def told(self) -> Told:
        """What the operator or a note outside of the folder says about the group."""
        return self._beginning.told

    def hold(self, now: float) -> Hold | None:
        """Return why this member does not begin its group; None if it does not wait for that."""
        return self._beginning.hold(self._standing, self._answers, now)

    @property
    def asked_members(self) -> list[str]:
        """The members to ask: all known voters, and the leader, which may have joined later."""
        leader = {self._state.leader} if self._state.leader is not None else set()
        return sorted(self._other_voters.union(leader) - {self._state.self_id})

    @property
    def _other_voters(self) -> frozenset[str]:
        state = self._state
        return (self._voters | state.membership.voting_members) - {state.self_id}

    @property
    def _asks(self) -> bool:
        if self._state.proven:
            return bool(self._awaited) and self.is_new
        if self._floor is not None:
            return False
        return self._goal is None or self._goal.term != self._state.term

    def _holds(self, goal: _Goal) -> bool:
        """Return whether the entry appended for this member is durable here and committed. Only
        proven members have committed it, because this member's answers do not count. An entry
        before the log's beginning is in the leader's snapshot, which holds only committed entries.
        """
        state, view = self._state, self._view
        in_snapshot = goal.index <= view.before_begin
        return (
            goal.term == state.term
            and (in_snapshot or view.term_at(goal.index) == goal.term)
            and goal.index <= state.durable
            and (goal.index <= state.committed or goal.leader == state.sole_other)
        )

    # --- another member is in doubt -----------------------------------------------------------

    def asked(self, asker: str, inquiry: Inquiry, *, steady: bool) -> tuple[InquiryAnswer, bool]:
        """Return the answer to another member, and whether this leader must append an entry for it.

        A leader that hands over (not `steady`) appends nothing, and does not answer as a leader.
        """
        state = self._state
        leads = steady and state.role is Role.LEADER
        last_index, begins = self._view.last_index, False
        if leads:
            begins = self._told.get(asker, (None, 0))[0] != inquiry.number
            if begins:
                self._told[asker] = (inquiry.number, last_index)
            last_index = self._told[asker][1]
        membership = state.membership
        voters = len(membership.voting_members) if membership.is_settled else 0
        told = (last_index, self.is_new, state.proven, leads, voters)
        return InquiryAnswer(state.term, inquiry.number, *told), begins

    def stop_leading(self) -> None:
        """Forget the answers that this member gave as a leader, because it stopped leading."""
        self._told.clear()
