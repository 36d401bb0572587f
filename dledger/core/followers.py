"""The other members as their leader sees them: dispatchers, voters, and learners catching up."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.core.entry_dispatcher import BatchSizer, EntryDispatcher
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.catch_up import (
    CatchUp,
    LearnerProgress,
    Transfer,
    Verdict,
    check_caught_up,
    check_heard,
    new_voters,
)
from dledger.core.membership.change_errors import LearnerStalled
from dledger.core.membership.configuration import Configuration
from dledger.core.snapshot.snapshot_offer import SnapshotSource


class Followers:
    """One dispatcher for each other member, learners included, while this member leads.

    A removed member gets the log for one more election timeout. So it learns of its removal, and
    does not ask for votes that no member would give it.

    Attributes:
        changing: whether a member joins, leaves or catches up, so that `observe` has work to do.
        dispatchers: all dispatchers, by member.
        voters: the dispatchers of members that vote.
        catch_ups: the progress of learners, by member.
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
        snapshots: SnapshotSource,
    ) -> None:
        self._state = state
        self._view = view
        self._batches = batches
        self._snapshots = snapshots
        self._timeout_s = timeout_s
        self._announced = 0
        self._leave_by = 0.0
        self._leaving: dict[str, float] = {}  # when to drop each removed member
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self.voters: dict[str, EntryDispatcher] = {}
        self.catch_ups: dict[str, CatchUp] = {}
        self.changing = False

    def follow(self, now: float) -> None:
        """Follow the configuration in force. New members count as heard just now."""
        state, view = self._state, self._view
        membership = state.membership
        members = membership.members - {state.self_id}
        for peer in sorted(members):
            # A member that comes back may have another disk: forget its acknowledgements.
            if peer not in self.dispatchers or self._leaving.pop(peer, None) is not None:
                self.dispatchers[peer] = EntryDispatcher(
                    peer, state.term, view, self._batches, now, state.agenda, self._snapshots
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
        self._note_changing()

    def _note_changing(self) -> None:
        configuration, votes = self._state.membership.configuration, self._state.votes
        joins = bool(self.catch_ups) or configuration.is_joint
        self.changing = joins or bool(self._leaving) or not votes

    def restart_catch_up(self, learner: str, now: float) -> None:
        """Restart the catch-up of a learner, unless it is catching up already."""
        catch_up = self.catch_ups.get(learner)
        if catch_up is not None and catch_up.verdict is not Verdict.CATCHING_UP:
            self.catch_ups[learner] = CatchUp(self._view.last_index, self._timeout_s, now)

    def observe(self, now: float) -> None:
        """Judge the learners, and drop removed members whose time is over."""
        for peer, catch_up in self.catch_ups.items():
            catch_up.observe(progress_of(self.dispatchers[peer]), self._view.last_index, now)
        if self._leaving:
            for peer in [peer for peer, until in self._leaving.items() if now >= until]:
                del self._leaving[peer], self.dispatchers[peer]
            self._note_changing()

    def stalled(self, learner: str, now: float) -> LearnerStalled:
        """Return the error that says what a learner waits for."""
        progress, last_index = progress_of(self.dispatchers[learner]), self._view.last_index
        waits_for = self.catch_ups[learner].waits_for(progress, last_index, now)
        return LearnerStalled(learner, last_index - progress.match_index, waits_for)

    def announced(self, round_number: int, now: float) -> None:
        """Note that this round of heartbeats tells every member that the change is committed."""
        self._announced = round_number
        self._leave_by = now + self._timeout_s

    def quorum_knows(self, confirmed: Mapping[str, int]) -> bool:
        """Return whether a quorum knows which configuration is in force: each of its members has
        the entry and answered a heartbeat that announced its commit. `confirmed` is the last round
        that each member answered.
        """
        membership = self._state.membership
        known = {
            peer: confirmed.get(peer, 0)
            for peer, dispatcher in self.voters.items()
            if dispatcher.match_index >= membership.index
        }
        known[self._state.self_id] = self._announced
        return membership.quorum.reached(known, 0) >= self._announced

    def allow_step_down(self, confirmed: Mapping[str, int], now: float) -> bool:
        """Return whether a leader that no longer votes may step down: a quorum knows of the change,
        or the leader has waited for an election timeout.
        """
        return now >= self._leave_by or self.quorum_knows(confirmed)

    def check_change(self, after: Configuration) -> None:
        """Refuse a configuration whose voters could not form a quorum, or lack much of the log.

        Raises LearnerBehind, VoterInDoubt or VotersSilent.
        """
        state, dispatchers = self._state, self.dispatchers
        known = {peer: d.match_index for peer, d in dispatchers.items()}
        before = state.membership.configuration
        new = new_voters(before, after)
        # A learner that has never answered this leader may be in doubt.
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
        self.dispatchers.clear()
        self.voters = {}
        self.catch_ups = {}
        self._leaving.clear()
        self._announced = 0
        self.changing = False


def progress_of(learner: EntryDispatcher) -> LearnerProgress:
    transfer, sender = None, learner.last_sender
    if sender is not None:
        index, size = sender.offer.index, sender.offer.size
        transfer = Transfer(index, sender.acknowledged, size, sender.refused, sender.installed)
    return LearnerProgress(
        learner.match_index,
        learner.last_answer_at,
        learner.proven,
        transfer,
        learner.lacks_snapshot,
    )
