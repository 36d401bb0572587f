"""An append that comes alone is not made to wait, and no other pays for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import trio
import trio.testing

from dledger.core.member_state import Role
from dledger.core.messages import Phase, PushRequest, PushResponse, VoteResponse
from dledger.entry import Body
from dledger.errors import LeadershipLost
from dledger.node.driver import Driver
from dledger.node.turn import SYNCS_BESIDE_ENTRIES
from dledger.waits.call_waits import wait_appended
from dledger.waits.pending_appends import Done, Outcome
from tests.dledger.node.stored_member import StoredMember
from tests.dledger.node.test_traps_durability import DeafLink, DeafLinks, driver_of


class Leader:
    """One that leads in term 1, and has committed its no-op."""

    def __init__(self, others: Sequence[str]) -> None:
        self.member = StoredMember("n0", ["n0", *others])
        self.links = DeafLinks({peer: DeafLink() for peer in others})
        self.driver: Driver = driver_of(self.member, self.links)
        self.is_quick()
        self.outcomes: list[Outcome] = []
        self.member.replica.elector.deadline = 0.0  # its election timeout ran out
        self.driver.received("n1", [])
        for pre in (True, False):
            self.driver.received("n1", [VoteResponse(1, granted=True, pre=pre)])
        assert self.member.replica.state.role is Role.LEADER
        for peer in others:
            self.driver.received(peer, [PushResponse(1, Phase.COMPARE, True, -1)])
        self.acknowledge(0)
        assert self.member.replica.state.committed == 0

    def acknowledge(self, index: int) -> None:
        """n1 has everything up to there."""
        if self.links:
            answer = PushResponse(1, Phase.APPEND, True, index, index, index, index)
            self.driver.received("n1", [answer])

    def is_quick(self) -> None:
        """The disk has shown that it is quick, also on a machine that is busy."""
        self.driver._syncer._average_s = -1e9

    def append(self, done: Done | None = None) -> None:
        self.is_quick()
        self.driver.submit([b"body"], 4, done or self.outcomes.append, at_once=True)

    @property
    def pushed(self) -> int:
        """The last entry that left for n1."""
        pushes = [m for m in self.links["n1"].messages if isinstance(m, PushRequest)]
        return max(push.last_index for push in pushes)


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    leader = Leader(["n1", "n2"])
    yield leader
    leader.driver.close()


def alone_once(leader: Leader) -> None:
    """One append by itself, from its beginning to its end."""
    leader.append()
    leader.driver.turn()
    leader.acknowledge(1)
    assert len(leader.outcomes) == 1


async def test_an_append_leaves_at_once_if_the_last_one_was_alone_too(leader: Leader) -> None:
    leader.append()
    assert leader.pushed == 0, "nobody knows yet whether others append as well"
    leader.driver.turn()
    leader.acknowledge(1)
    leader.append()
    assert leader.pushed == 2
    assert leader.member.store.synced_index == 2
    assert len(leader.outcomes) == 1
    leader.acknowledge(2)
    assert len(leader.outcomes) == 2


async def test_an_append_that_follows_on_the_last_one_leaves_with_its_acknowledgement(
    leader: Leader,
) -> None:
    alone_once(leader)
    leader.append(lambda outcome: leader.driver.submit([b"next"], 4, leader.outcomes.append))
    leader.acknowledge(2)
    assert leader.pushed == 3


async def test_appends_while_another_is_under_way_wait_for_each_other(leader: Leader) -> None:
    alone_once(leader)
    leader.append()
    leader.append()
    leader.append()
    assert leader.pushed == 2
    leader.driver.turn()
    pushes = [m for m in leader.links["n1"].messages if isinstance(m, PushRequest)]
    assert [(push.prev_index, push.last_index) for push in pushes][-2:] == [(1, 2), (2, 4)]
    leader.acknowledge(4)
    leader.append()
    assert leader.pushed == 4, "there were two at a time just now"


async def test_appends_to_a_group_of_one_share_their_syncs() -> None:
    leader = Leader([])
    try:
        leader.append()
        leader.driver.turn()
        assert len(leader.outcomes) == 1
        for _ in range(3):
            leader.append()
        assert leader.member.store.last_index == 1
        leader.driver.turn()
        assert leader.member.store.last_index == 4
        assert len(leader.outcomes) == 4
    finally:
        leader.driver.close()


async def test_a_leader_takes_in_further_appends_while_many_wait_for_its_disk(
    leader: Leader,
) -> None:
    for many, syncs_beside in ((SYNCS_BESIDE_ENTRIES - 1, False), (SYNCS_BESIDE_ENTRIES, True)):
        leader.is_quick()
        leader.driver.submit([b"body"] * many, 4 * many, leader.outcomes.append)
        leader.driver.turn()
        assert leader.driver.member.turn.syncs.busy is syncs_beside
        leader.acknowledge(leader.member.store.last_index)


async def test_nothing_is_appended_at_once_to_a_node_that_has_stopped(leader: Leader) -> None:
    alone_once(leader)
    leader.driver.close()
    leader.append()
    assert (leader.pushed, leader.member.store.last_index) == (1, 1)


async def test_an_append_whose_outcome_is_known_before_anybody_waits_is_answered() -> None:
    error = LeadershipLost(1, 1, "n1")

    def submit(bodies: Sequence[Body], done: Done, at_once: bool) -> None:
        done(error)

    with trio.fail_after(1), pytest.raises(LeadershipLost) as raised:
        await wait_appended(submit, (b"body",))
    assert raised.value is error


async def test_an_outcome_after_the_wait_was_given_up_disturbs_nobody() -> None:
    given: list[Done] = []

    def submit(bodies: Sequence[Body], done: Done, at_once: bool) -> None:
        given.append(done)

    with trio.move_on_after(0):
        await wait_appended(submit, (b"body",))
    assert given == []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_appended, submit, (b"body",))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    (done,) = given
    done(LeadershipLost(1, 1, None))
    await trio.lowlevel.checkpoint()
