"""Changes the members of a group, and waits until removed members may be stopped.

A new voter joins as a learner, and becomes a voter when it has the log.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

import trio

from dledger.core.member_state import Role
from dledger.core.membership.catch_up import Verdict, learners_first, new_voters
from dledger.core.membership.change_errors import ConfigurationMoved, LearnerBehind
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import Change, Transition, change
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.replica import Replica
from dledger.entry import NO_TERM
from dledger.errors import Discarded, LeadershipLost, NodeClosing
from dledger.node_end import NodeEnd
from dledger.waits.progress import Progress

# How long a member that lost leadership waits to learn the outcome of its change, in election
# timeouts: an election takes one to two of them, a split vote another two.
WAIT_TIMEOUTS = 4.0


class GroupChanges:
    """The changes that callers of one node wait for.

    Args:
        replica: proposes changes, and knows the configuration in force.
        wake: requests a turn of the node's driver soon.
        moved: made when the role or the group has changed, or entries were applied.
        before_change: called before the group goes over to a configuration; may refuse it.
    """

    def __init__(
        self,
        replica: Replica,
        wake: Callable[[], None],
        moved: Progress,
        before_change: Callable[[Configuration], Awaitable[None]],
    ) -> None:
        self._replica = replica
        self._before_change = before_change
        self._wake = wake
        self._moved = moved

    async def carry_out(
        self, changes: Sequence[Change], transition: Transition, expected: int | None
    ) -> NumberedConfiguration:
        """Make the changes; return the configuration then in force. See `Node.change`."""
        await self._wait_serving()
        membership = self._replica.state.membership
        if expected is not None and expected != membership.index:
            raise ConfigurationMoved(expected, membership.index)
        expected = await self._learners_first(changes, expected)
        before = membership.configuration
        after = change(before, changes, transition)
        if after != before:
            await self._before_change(after)
            await self._wait_caught_up(sorted(new_voters(before, after) & before.learners))
            await self._wait_made(self._replica.propose_change(changes, transition, expected))
        return NumberedConfiguration(membership.index, membership.configuration)

    async def leave_joint(self) -> NumberedConfiguration:
        """End a joint phase of JOINT_MANUAL. Raises as `Node.change`, and NotJoint."""
        await self._wait_serving()
        await self._wait_made(self._replica.propose_leave())
        membership = self._replica.state.membership
        return NumberedConfiguration(membership.index, membership.configuration)

    async def _wait_serving(self) -> None:
        """Wait until a new leader has committed in its own term. It may not change before."""
        replica = self._replica
        while replica.state.role is Role.LEADER and not replica.commits_in_own_term:
            await self._moved.wait()
        replica.check_proposable()

    async def _learners_first(self, changes: Sequence[Change], expected: int | None) -> int | None:
        """Add the new voters as learners; return the index of the configuration to go on from."""
        membership = self._replica.state.membership
        first = learners_first(membership.configuration, changes)
        if not first:
            return expected
        await self._before_change(change(membership.configuration, first))
        index = self._replica.propose_change(first, Transition.AUTO, expected)
        await self._wait_made(index)
        return index

    async def _wait_caught_up(self, learners: Sequence[str]) -> None:
        """Wait until these learners have nearly all of the log.

        Raises NotLeader, LeadershipMoving, LearnerBehind, LearnerStalled; they stay learners then.
        """
        replica = self._replica
        for learner in learners:
            replica.restart_catch_up(learner, trio.current_time())
        for learner in learners:
            while True:
                replica.check_proposable()
                catch_up = replica.followers.catch_ups.get(learner)
                if catch_up is None or catch_up.verdict is Verdict.CAUGHT_UP:
                    break
                if catch_up.verdict is not Verdict.CATCHING_UP:
                    if catch_up.verdict is Verdict.STALLED:
                        raise replica.stalled(learner, trio.current_time())
                    match_index = replica.dispatchers[learner].match_index
                    raise LearnerBehind(learner, replica.view.last_index - match_index)
                await self._moved.wait()

    async def _wait_made(self, index: int) -> None:
        """Wait until the change at `index` is in force, its joint phase over, and a quorum knows.

        Raises Discarded; LeadershipLost or NodeClosed if the outcome is unknown here.
        """
        replica, state = self._replica, self._replica.state
        term = state.term
        deadline = math.inf
        self._wake()
        while not self._is_over(index, term):
            if state.role is not Role.LEADER or state.term != term:
                timeout_s = WAIT_TIMEOUTS * replica.config.election_timeout_s
                deadline = min(deadline, trio.current_time() + timeout_s)
            with trio.move_on_at(deadline) as scope:
                try:
                    await self._moved.wait()
                except NodeClosing as closing:
                    # The other members may still commit it.
                    raise NodeEnd(closing.__cause__).closed(index) from closing.__cause__
            if scope.cancelled_caught:
                raise LeadershipLost(index, term, state.leader)

    def _is_over(self, index: int, term: int) -> bool:
        replica, state = self._replica, self._replica.state
        if state.committed < index:
            return False
        if replica.view.term_at(index) not in (term, NO_TERM):
            raise Discarded(index, term)
        configuration = state.membership.configuration
        if configuration.is_joint and configuration.auto_leave:
            return False
        leads = state.role is Role.LEADER and state.term == term
        return not leads or replica.leadership.change_is_known
