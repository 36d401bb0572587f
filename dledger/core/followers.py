"""The other members, as their leader sees them: who gets the log, who decides, who catches up."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.core.entry_dispatcher import BatchSizer, EntryDispatcher
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.catch_up import (
    CatchUp,
    Verdict,
    check_caught_up,
    check_heard,
    new_voters,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.snapshot.snapshot_offer import NO_SNAPSHOTS, SnapshotSource


class Followers:
    """One dispatcher for each other member, learners too, while this member leads.

    Who was removed gets the log for one more election timeout: so it learns that it was, and need
    not ask for votes that nobody will give it.

    Attributes:
        changing: whether anybody joins, leaves or catches up, so that time matters to it.
        dispatchers: all of them, by member.
        voters: those of members that vote.
        catch_ups: how far learners have come, by member.
    """

    __slots__ = (
        "_announced",
        "_batches",
        "_leave_by",
        "_leaving",
        "_snapshots",
        "_state",
        "_timeout_s",
        "_view",
        "catch_ups",
        "changing",
        "dispatchers",
        "voters",
    )

    def __init__(
        self,
        state: MemberState,
        view: LedgerView,
        batches: BatchSizer,
        timeout_s: float,
        snapshots: SnapshotSource = NO_SNAPSHOTS,
    ) -> None:
        self._state = state
        self._view = view
        self._batches = batches
        self._snapshots = snapshots
        self._timeout_s = timeout_s
        self._announced = 0
        self._leave_by = 0.0
        self._leaving: dict[str, float] = {}  # until when
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self.voters: dict[str, EntryDispatcher] = {}
        self.catch_ups: dict[str, CatchUp] = {}
        self.changing = False

    def follow(self, now: float) -> None:
        """Lead the members of the configuration in force. New ones count as heard just now."""
        state, view = self._state, self._view
        membership = state.membership
        members = membership.members - {state.self_id}
        for peer in sorted(members):
            # Who comes back may have another disk: what it once acknowledged says nothing.
            if peer not in self.dispatchers or self._leaving.pop(peer, None) is not None:
                self.dispatchers[peer] = EntryDispatcher(
                    peer, state.term, view, self._batches, now, self._snapshots
                )
        for peer in sorted(self.dispatchers.keys() - members):
            self._leaving.setdefault(peer, now + self._timeout_s)
        voting = membership.voting_members
        self.voters = {peer: d for peer, d in self.dispatchers.items() if peer in voting}
        learners = membership.configuration.learners & members
        self.catch_ups = {
            peer: self.catch_ups.get(peer) or CatchUp(view.last_index, self._timeout_s, now)
            for peer in sorted(learners)
        }
        self._look()

    def _look(self) -> None:
        configuration, votes = self._state.membership.configuration, self._state.votes
        joins = bool(self.catch_ups) or configuration.is_joint
        self.changing = joins or bool(self._leaving) or not votes

    def watch(self, learner: str, now: float) -> None:
        """Judge a learner anew, from what it has now on; not one that is on its way."""
        catch_up = self.catch_ups.get(learner)
        if catch_up is not None and catch_up.verdict is not Verdict.CATCHING_UP:
            self.catch_ups[learner] = CatchUp(self._view.last_index, self._timeout_s, now)

    def observe(self, now: float) -> None:
        """Time passes: learners are judged, and who was removed is left alone at last."""
        for peer, catch_up in self.catch_ups.items():
            learner, last_index = self.dispatchers[peer], self._view.last_index
            catch_up.observe(learner.match_index, last_index, now, learner.proven)
        if self._leaving:
            for peer in [peer for peer, until in self._leaving.items() if now >= until]:
                del self._leaving[peer], self.dispatchers[peer]
            self._look()

    def announced(self, round_number: int, now: float) -> None:
        """The heartbeats of this round told everybody that the last change is committed."""
        self._announced = round_number
        self._leave_by = now + self._timeout_s

    def know(self, confirmed: Mapping[str, int]) -> bool:
        """Whether a quorum knows which configuration is in force: it has the entry, and answered a
        heartbeat that said that it is committed. `confirmed` is the last round of each member.
        """
        membership = self._state.membership
        known = {
            peer: confirmed.get(peer, 0)
            for peer, dispatcher in self.voters.items()
            if dispatcher.match_index >= membership.index
        }
        known[self._state.self_id] = self._announced
        return membership.quorum.reached(known, 0) >= self._announced

    def can_do_without(self, confirmed: Mapping[str, int], now: float) -> bool:
        """Whether a leader that votes no more may go: they know it, or it waited long enough."""
        return now >= self._leave_by or self.know(confirmed)

    def check_change(self, after: Configuration) -> None:
        """Refuse a configuration whose voters could not decide, or would have to wait for the log.

        Raises LearnerBehind, VoterInDoubt or VotersSilent.
        """
        state, dispatchers = self._state, self.dispatchers
        known = {peer: d.match_index for peer, d in dispatchers.items()}
        before = state.membership.configuration
        new = new_voters(before, after)
        # What a learner has never told this leader could be that it is in doubt.
        in_doubt = [
            peer
            for peer, d in dispatchers.items()
            if not d.proven or (peer in new and not d.answered)
        ]
        caught_up = {peer for peer, c in self.catch_ups.items() if c.verdict is Verdict.CAUGHT_UP}
        check_caught_up(before, after, known, self._view.last_index, in_doubt, caught_up)
        heard = {peer for peer, d in dispatchers.items() if d.answered} | {state.self_id}
        check_heard(before, after, heard)

    def clear(self) -> None:
        """This member leads no more."""
        self.dispatchers.clear()
        self.voters = {}
        self.catch_ups = {}
        self._leaving.clear()
        self._announced = 0
        self.changing = False
