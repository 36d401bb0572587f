"""How a client finds the leader, and leaves one that is silent; scripted members, virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import dledger
from dledger.client.client_errors import ConnectionLost, GroupUnreachable
from dledger.client.known_members import KnownMembers, Peers
from dledger.client.leader_connection import ANSWER_TIMEOUT_S, SILENCE_S, LeaderConnection
from dledger.errors import NodeClosing, NotLeader
from dledger.network.tls import GroupTls
from dledger.network.tls_config import TlsConfig
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.wire.client_protocol import Operation, Request
from dledger.wire.session_protocol import encode_session_answers
from tests.dledger.client.fake_member import GROUP, FakeGroup, appended, fake_group, silent

# Sockets are real: the clock jumps only when nothing has come for so long.
QUIET_S = 0.05


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=QUIET_S)


@asynccontextmanager
async def following(peers: Peers) -> AsyncIterator[LeaderConnection]:
    async with unwrapping_nursery() as nursery:
        leader = LeaderConnection(KnownMembers(GROUP, peers), None, nursery)
        nursery.start_soon(leader.run)
        yield leader
        nursery.cancel_scope.cancel()


async def append(leader: LeaderConnection, body: bytes = b"x") -> None:
    await leader.ask(Operation.APPEND, [len(body)], body)


def asked(group: FakeGroup) -> list[int]:
    return [len(member.asked) for member in group.members]


async def test_the_leader_is_found_among_the_members_and_the_connection_is_kept(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        group.elect(1, term=4)
        async with following(group.peers) as leader:
            for _ in range(5):
                await append(leader)
            assert asked(group) == [0, 5, 0]
            await trio.testing.wait_all_tasks_blocked(QUIET_S)
            assert [len(member.open) for member in group.members] == [0, 1, 0]


@pytest.mark.parametrize("shape", ["one address", "a list of addresses", "a name and an address"])
async def test_one_member_s_address_is_enough(shape: str, clock: trio.testing.MockClock) -> None:
    async with fake_group(3) as group:
        group.elect(2, term=1)
        for member in group.members:
            member.configuration = (7, group.peers)
        address = group[0].address
        peers: dict[str, Peers] = {
            "one address": address,
            "a list of addresses": [address],
            "a name and an address": f"n0={address}",
        }
        async with following(peers[shape]) as leader:
            await append(leader)
            assert asked(group) == [0, 0, 1]


async def test_a_leader_at_the_address_of_a_member_that_left_is_found(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        before = {"n0": group[0].address, "n1": group[1].address, "gone": group[2].address}
        for member in group.members:
            member.configuration = (5, group.peers)
        group.elect(2, term=1)
        async with following(before) as leader:
            await append(leader)
        assert asked(group) == [0, 0, 1]


async def test_a_member_that_left_is_asked_no_more(clock: trio.testing.MockClock) -> None:
    async with fake_group(2) as group:
        before = {"n0": group[0].address, "gone": group[1].address}
        async with following(before) as leader, trio.open_nursery() as nursery:
            nursery.start_soon(append, leader)
            await trio.sleep(1.0)
            assert group[1].opened >= 2
            for member in group.members:
                member.configuration = (5, group.peers)
            await trio.sleep(2.5)  # what is asked already is answered after a second
            assert "gone" not in leader.problem
            group.elect(0, term=1)


async def test_a_member_that_calls_itself_leader_is_not_believed_against_a_later_term(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        group[0].hear("n1", 6)
        group[1].hear("n1", 6)  # leads, and is not ready yet
        async with following({"n0": group[0].address}) as leader:
            group[0].configuration = (3, group.peers)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, leader)
                await trio.sleep(0.5)
                group[2].lead(5)  # was cut off, and does not know it
                await trio.sleep(1.5)
                assert asked(group) == [0, 0, 0]
                group[1].lead(6)
            assert asked(group) == [0, 1, 0]


async def test_a_refusal_sends_the_client_on_and_what_is_on_its_way_is_still_answered(
    clock: trio.testing.MockClock,
) -> None:
    held: list[Request] = []

    def deposed(request: Request) -> dledger.DLedgerError | None:
        if request.payload == b"held":
            held.append(request)
            return None
        return NotLeader("n1", 2)

    async with fake_group(2) as group:
        group.elect(0, term=1).script = deposed
        async with following(group.peers) as leader, trio.open_nursery() as nursery:
            nursery.start_soon(append, leader, b"held")
            await trio.sleep(0.1)
            group.elect(1, term=2)
            with pytest.raises(NotLeader):
                await append(leader)
            await append(leader)
            assert asked(group) == [2, 1]
            await group[0].send(appended(held[0]))


async def test_a_session_outlives_a_leader_that_closes(clock: trio.testing.MockClock) -> None:
    def opened(request: Request) -> bytes:
        return encode_session_answers(request.request_id, [SessionAnswer(AnswerKind.OPENED, 9)])

    async with fake_group(2) as group:
        group.elect(0, term=1).script = opened
        async with (
            dledger.connect(group.peers, group=GROUP) as log,
            log.session(ttl_s=600.0) as session,
        ):
            group[0].script = lambda _: NodeClosing()
            group[1].script = lambda request: encode_session_answers(
                request.request_id, [SessionAnswer(AnswerKind.APPLIED, 10, b"\x07")]
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.append, b"x")
                await trio.sleep(0.5)
                group.elect(1, term=2)
        assert [each.operation for each in group[0].asked].count(Operation.SESSION_APPEND) == 1
        assert group[1].asked[0].operation is Operation.SESSION_APPEND


async def test_a_silent_leader_is_left_as_soon_as_another_one_leads(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        group.elect(0, term=1)
        async with following(group.peers) as leader:
            await append(leader)
            group[0].frozen = True
            began = trio.current_time()

            async def elect() -> None:
                await trio.sleep(0.8)
                group.elect(1, term=2)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(elect)
                with pytest.raises(ConnectionLost):
                    await append(leader)
                await append(leader)
            assert trio.current_time() - began == pytest.approx(0.8, abs=0.05)
            # A question is held until there is news, nobody polls: one without knowing any leader,
            # one for a newer leader than the first, one after that was silent, and of the member
            # that was not elected one more.
            assert group[1].asked_who_leads <= 3
            assert group[2].asked_who_leads <= 3 + 1
            await append(leader)
            assert asked(group) == [2, 2, 0]


async def test_a_leader_that_is_slow_is_kept_while_nobody_else_leads(
    clock: trio.testing.MockClock,
) -> None:
    held: list[Request] = []

    def slow(request: Request) -> None:
        held.append(request)

    async with fake_group(2) as group:
        group.elect(0, term=1).script = slow
        async with following(group.peers) as leader, trio.open_nursery() as nursery:
            nursery.start_soon(append, leader)
            await trio.sleep(3.0)
            await group[0].send(appended(held[0]))
            await trio.sleep(60.0)
            assert asked(group) == [1, 0]
            assert len(group[1].open) == 0  # it is asked no more


async def test_a_connection_without_an_answer_is_given_up_in_the_end(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(1) as group:
        group.elect(0, term=1).script = silent
        async with following(group.peers) as leader:
            began = trio.current_time()
            with pytest.raises(ConnectionLost, match="silent for"):
                await append(leader)
            assert trio.current_time() - began == pytest.approx(ANSWER_TIMEOUT_S, abs=0.2)
            group[0].script = appended
            await append(leader)  # the same leader, in the same term


@pytest.mark.parametrize("paused_s", [1.0, 10.0, 60.0])
async def test_a_client_that_was_paused_still_waits_for_the_answer_that_it_is_owed(
    paused_s: float, clock: trio.testing.MockClock
) -> None:
    held: list[Request] = []
    async with fake_group(1) as group:
        group.elect(0, term=1).script = held.append
        async with following(group.peers) as leader, trio.open_nursery() as nursery:
            nursery.start_soon(append, leader)
            await trio.sleep(2 * SILENCE_S)
            clock.jump(paused_s)
            await trio.sleep(SILENCE_S)  # the leader was paused as well
            await group[0].send(appended(held[0]))
        assert asked(group) == [1]


async def test_an_idle_client_asks_nobody(clock: trio.testing.MockClock) -> None:
    async with fake_group(3) as group:
        group.elect(0, term=1)
        async with following(group.peers) as leader:
            await append(leader)
            before = [member.asked_who_leads for member in group.members]
            await group[0].cut()
            await trio.sleep(3600.0)
            assert [member.asked_who_leads for member in group.members] == before
            await append(leader)


async def test_a_question_that_takes_long_by_its_nature_is_not_silence(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(2) as group:
        group.elect(0, term=1).script = silent
        async with following(group.peers) as leader:
            await leader.reach()
            before = group[1].asked_who_leads
            with trio.move_on_after(10 * SILENCE_S + ANSWER_TIMEOUT_S):
                await leader.ask(Operation.TRANSFER, ())
                raise AssertionError("answered")
            assert group[1].asked_who_leads == before


async def test_without_a_leader_the_reason_is_told(clock: trio.testing.MockClock) -> None:
    async with fake_group(3) as group:
        group[1].hear("n0", 3)
        group[2].frozen = True
        await group[0].cut()
        async with following(group.peers) as leader:
            with pytest.raises(GroupUnreachable, match="n1 takes n0 for the leader") as found:
                await leader.reach()
        assert "silent for" in str(found.value)
        assert "n0 knows no leader" in str(found.value)


async def test_a_member_that_ends_every_connection_is_not_asked_without_a_pause(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(1) as group:
        member = group.elect(0, term=1)

        def end(_: Request) -> None:
            raise trio.BrokenResourceError

        member.script = end
        async with following(group.peers) as leader:
            with trio.move_on_after(10.0):
                while True:
                    with pytest.raises((ConnectionLost, GroupUnreachable)):
                        await append(leader)
            assert member.opened < 30


def certificates(name: str) -> GroupTls:
    folder = Path(__file__).parent.parent / "data" / "tls"
    return GroupTls(
        TlsConfig(
            certificate=folder / f"{name}.pem",
            key=folder / f"{name}-key.pem",
            authorities=folder / "authority.pem",
        )
    )


async def test_members_are_asked_over_tls_and_only_the_one_that_was_meant_is_believed() -> None:
    async with fake_group(2, certificates("n0")) as group:
        group.elect(0, term=1)
        tool = certificates("tool")
        async with dledger.connect(group.peers, group=GROUP, tls=tool) as log:
            await log.append(b"x")
        assert asked(group) == [1, 0]
        client = dledger.GroupClient(GROUP, group.peers, tool)
        with pytest.raises(GroupUnreachable, match="its certificate is that of n0, not of n1"):
            await client.status("n1")
        with pytest.raises(dledger.ConfigInvalid, match="name the members"):
            dledger.GroupClient(GROUP, group[0].address, tool)
