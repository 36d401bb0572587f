"""The connection to the leader breaks at each of its calls: every caller goes on with the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from dledger.client.client_errors import ConnectionLost, GroupUnreachable
from dledger.client.known_members import KnownMembers
from dledger.client.leader_connection import LEAVE_S, SILENCE_S, LeaderConnection
from dledger.config import Address
from dledger.errors import NodeClosed, NodeClosing, NotLeader
from dledger.network.network import Listeners
from dledger.pauses import FIRST_PAUSE_S
from dledger.wire.client_protocol import Operation, Request
from tests.breaking_stream import BreakingStream
from tests.dledger.client.fake_member import GROUP, Answer, FakeMember, appended

NEVER = 1 << 30
# More calls than are made until the first caller has its answer.
MOST_CALLS = 14
CALLERS = 6
# It dials again after two pauses at most. The second is twice the first, and each takes up to half
# as long again by its jitter.
SOON_S = 1.5 * (FIRST_PAUSE_S + 2 * FIRST_PAUSE_S)

# What the connection knows from one leader to the next on purpose.
KEPT = {"_home", "_above_term", "_current", "_search"}


class Hosts:
    """Two members that are dialled in memory. A connection breaks where `breaks_at` says."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.members = [FakeMember(f"n{at}", f"127.0.0.1:{15400 + at}") for at in range(2)]
        self.breaks_at: Callable[[int], int] = lambda _dialled: NEVER
        self.dialled: list[BreakingStream] = []
        self.down: set[int] = {1}

    async def dial(self, address: Address) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        number = address.port - 15400
        if number in self.down:
            raise ConnectionRefusedError
        near, far = memory_stream_pair()
        stream = BreakingStream(near, self.breaks_at(len(self.dialled)))
        self.dialled.append(stream)
        self._nursery.start_soon(self.members[number].serve, far)
        return cast(trio.abc.Stream, stream)

    async def listen(self, _address: Address) -> Listeners:
        return []

    def new_leader(self) -> None:
        """The first member is gone, and the second one leads."""
        self.down = {0}
        self.members[1].lead(2)

    @property
    def open(self) -> int:
        """How many connections the client has not closed."""
        return sum(not stream.is_closed for stream in self.dialled)


@asynccontextmanager
async def followed() -> AsyncIterator[tuple[Hosts, LeaderConnection]]:
    async with trio.open_nursery() as nursery:
        hosts = Hosts(nursery)
        hosts.members[0].lead(1)
        peers = {member.node_id: member.address for member in hosts.members}
        leader = LeaderConnection(KnownMembers(GROUP, peers), None, nursery, hosts)
        nursery.start_soon(leader.run)
        with trio.fail_after(1_000):
            yield hosts, leader
        fresh = LeaderConnection(KnownMembers(GROUP, peers), None, nursery, hosts)
        assert state(leader) == state(fresh)
        nursery.cancel_scope.cancel()


def state(leader: LeaderConnection) -> dict[str, object]:
    return {
        name: len(value) if isinstance(value, trio.lowlevel.ParkingLot) else value
        for name, value in vars(leader).items()
        if name not in KEPT and name != "_wanted"  # its own task waits there
    }


async def append_until_answered(leader: LeaderConnection, body: bytes = b"x") -> None:
    """As a client does whose entry may stand twice."""
    while True:
        try:
            await leader.ask(Operation.APPEND, [len(body)], body)
        except (ConnectionLost, GroupUnreachable, NotLeader, NodeClosing, NodeClosed):
            continue
        return


@pytest.mark.parametrize("is_gone", [False, True])
async def test_whatever_call_breaks_all_callers_are_soon_answered_over_the_next_connection(
    is_gone: bool, autojump_clock: MockClock
) -> None:
    for at in range(MOST_CALLS):
        answered: list[float] = []
        async with followed() as (hosts, leader):
            hosts.breaks_at = lambda dialled, at=at: NEVER if dialled else at  # type: ignore[misc]

            async def call(
                wait_s: float,
                leader: LeaderConnection = leader,
                answered: list[float] = answered,
            ) -> None:
                await trio.sleep(wait_s)
                await append_until_answered(leader)
                answered.append(trio.current_time())

            async with trio.open_nursery() as callers:
                for number in range(CALLERS):
                    callers.start_soon(call, number * 0.01)
                # Those that give up at any moment are not waited for, and do not count on.
                for number in range(CALLERS):
                    with trio.move_on_after(number * 0.005 + 0.002):
                        await append_until_answered(leader)
                while hosts.dialled[0].calls_left >= 0:
                    await trio.sleep(0.01)
                    callers.start_soon(call, 0.0)
                await hosts.dialled[0].broken.wait()
                broken_at = trio.current_time()
                if is_gone:
                    hosts.new_leader()
                for number in range(CALLERS):
                    callers.start_soon(call, number * 0.01)
            assert answered[-1] - broken_at < SOON_S + CALLERS * 0.01, f"breaks at call {at}"
            await trio.sleep(LEAVE_S + 1)
            assert hosts.open == 1
            # The leader that was found is kept: the search ends.
            dialled = len(hosts.dialled)
            await append_until_answered(leader)
            assert len(hosts.dialled) == dialled


@pytest.mark.parametrize("refusal", [NotLeader("n1", 2), NodeClosing(), NodeClosed(7)])
async def test_after_a_refusal_all_callers_go_on_with_the_next_leader(
    refusal: NotLeader | NodeClosing | NodeClosed, autojump_clock: MockClock
) -> None:
    for refused in range(1, CALLERS):
        async with followed() as (hosts, leader):
            first = hosts.members[0]

            def script(request: Request, refused: int = refused, hosts: Hosts = hosts) -> Answer:
                if len(hosts.members[0].asked) < refused:
                    return appended(request)
                if len(hosts.members[0].asked) == refused:
                    hosts.down.clear()
                    hosts.members[0].hear("n1", 2)
                    hosts.members[1].lead(2)
                return refusal

            first.script = script
            async with trio.open_nursery() as callers:
                for _ in range(CALLERS):
                    callers.start_soon(append_until_answered, leader)
            assert trio.current_time() < (refused + 1) * 10
            took_s = await time_of(leader)
            assert took_s == 0
            assert len(hosts.members[1].asked) == CALLERS - refused + 2
            await trio.sleep(LEAVE_S + 1)
            assert hosts.open == 1


async def time_of(leader: LeaderConnection) -> float:
    began = trio.current_time()
    await append_until_answered(leader)
    return trio.current_time() - began


async def test_connections_that_answered_something_are_made_again_without_ever_longer_pauses(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (hosts, leader):
        hosts.breaks_at = lambda _dialled: 12
        connections = 20
        while len(hosts.dialled) < connections:
            assert await time_of(leader) < SOON_S
        hosts.breaks_at = lambda _dialled: NEVER
        await append_until_answered(leader)
        await trio.sleep(1)


async def test_a_silent_leader_is_left_and_closed_when_another_one_leads(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (hosts, leader):
        await append_until_answered(leader)
        hosts.members[0].frozen = True
        async with trio.open_nursery() as callers:
            for _ in range(CALLERS):
                callers.start_soon(append_until_answered, leader)
            await trio.sleep(SILENCE_S + 0.2)
            hosts.down = set()
            hosts.members[1].lead(2)
            began = trio.current_time()
        assert trio.current_time() - began < 1.0
        await trio.sleep(0.1)
        assert hosts.open == 1, "it is closed, not only left"
        await append_until_answered(leader)


@pytest.mark.parametrize("idle_s", [0.0, 3.0, 60.0])
async def test_silence_counts_from_the_first_open_question_and_from_each_answer(
    idle_s: float, autojump_clock: MockClock
) -> None:
    held: list[Request] = []

    def script(request: Request) -> Answer:
        if request.payload != b"held":
            return appended(request)
        held.append(request)
        return None

    async with followed() as (hosts, leader):
        hosts.members[0].script = script
        await append_until_answered(leader)
        await trio.sleep(idle_s)
        async with trio.open_nursery() as callers:
            callers.start_soon(append_until_answered, leader, b"held")
            await trio.sleep(SILENCE_S * 0.9)
            for _ in range(30):
                await append_until_answered(leader)
                await trio.sleep(SILENCE_S * 0.9)
            assert len(hosts.dialled) == 1, "nobody is asked while the leader answers"
            await trio.sleep(SILENCE_S)
            assert len(hosts.dialled) > 1, "the others are asked when it is silent"
            await hosts.members[0].send(appended(held[0]))
        await trio.sleep(SILENCE_S)
        assert hosts.open == 1


async def test_a_member_that_was_told_gone_and_comes_back_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (hosts, leader):
        hosts.members[0].hear(None, 1)
        there, other = (member.address for member in hosts.members)
        async with trio.open_nursery() as callers:
            callers.start_soon(append_until_answered, leader)
            for index, name in enumerate(("n2", "n1", "n2", "n1")):
                hosts.members[0].configuration = (index, {"n0": there, name: other})
                await trio.sleep(3)
                assert hosts.members[0].asked == []
            hosts.down.clear()
            hosts.members[1].lead(2)
            began = trio.current_time()
        assert trio.current_time() - began < 2


async def test_a_connection_that_answered_something_ends_the_long_pauses_before_it(
    autojump_clock: MockClock,
) -> None:
    async with followed() as (hosts, leader):
        hosts.breaks_at = lambda _dialled: 5  # told who leads, and no more
        with trio.move_on_after(10):
            await append_until_answered(leader)
        useless = len(hosts.dialled)
        hosts.breaks_at = lambda dialled: 12 if dialled == useless else 5
        await append_until_answered(leader)
        hosts.dialled[-1].calls_left = 0
        before = len(hosts.dialled)
        with trio.move_on_after(1):
            await append_until_answered(leader)
        hosts.breaks_at = lambda _dialled: NEVER
        assert len(hosts.dialled) - before >= 4, "it begins with short pauses again"
        await append_until_answered(leader)
