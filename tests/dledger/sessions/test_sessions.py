"""Client sessions: over a scripted way, over real nodes in one loop, and through the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import dledger
from dledger.entry import Entry, Magic
from dledger.errors import Discarded, LeadershipLost, LogFull, NodeClosing
from dledger.free_ports import free_ports
from dledger.sessions.session import MOST_BODIES_AT_ONCE, MOST_UNSETTLED, Session, open_session
from dledger.sessions.session_entry import (
    MARK,
    MAX_TTL_MS,
    AppendInSession,
    CloseSession,
    OpenSession,
    SessionCommand,
    encode_command,
    encode_expire,
)
from dledger.sessions.session_gate import SessionGate
from dledger.sessions.session_table import SessionLimits
from dledger.sessions.with_sessions import SessionAnswer, WithSessions
from dledger.waits.pending_appends import Done
from tests.dledger.running_members import SMALL_FILES, Members

FAILED = LeadershipLost(1, 1, None)
REFUSED = LogFull(1, 1)


class Register:
    """Keeps every body in order; the result of an entry is how many there are."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            self.bodies.append(entry.body)
            results.append(len(self.bodies))
        return results


# --- a client over a way that fails as told -------------------------------------------------------


class ScriptedWay:
    """Applies commands to a machine, and loses commands or answers as the script says.

    A step of the script: None (all goes well), an error before the command gets there, or
    ("after", error): the command is applied and the answer is lost. "hang" never answers.
    """

    def __init__(self) -> None:
        self.register = Register()
        self.machine = WithSessions(self.register)
        self.script: list[object] = []
        self.index = 0
        self.commands: list[SessionCommand] = []

    async def reach(self) -> None:
        await trio.lowlevel.checkpoint()

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        return []

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        await trio.lowlevel.checkpoint()
        self.commands.append(command)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        answers = self.put(*encode_command(command, 0, SessionLimits()))
        if isinstance(step, tuple):
            raise step[1]
        if step == "hang":
            await trio.sleep_forever()
        return answers

    def put(self, *bodies: bytes) -> list[SessionAnswer]:
        answers: list[SessionAnswer] = []
        for body in bodies:
            (answer,) = self.machine.apply([Entry(self.index, 1, 0, Magic.NORMAL, body)])
            assert isinstance(answer, SessionAnswer)
            answers.append(answer)
            self.index += 1
        return answers


@asynccontextmanager
async def scripted(*script: object) -> AsyncIterator[tuple[ScriptedWay, Session]]:
    way = ScriptedWay()
    async with open_session(way, ttl_s=600.0) as session:
        way.script = list(script)
        yield way, session


@pytest.mark.parametrize("ttl_s", [0, -1.0, float("nan"), float("inf"), True])
async def test_a_session_of_no_length_is_refused(ttl_s: float) -> None:
    way = ScriptedWay()
    with pytest.raises(dledger.ConfigInvalid, match="ttl_s"):
        async with open_session(way, ttl_s=ttl_s):
            pass
    assert way.commands == []


async def test_a_session_is_kept_alive_within_the_ttl_that_leaders_grant(
    autojump_clock: object,
) -> None:
    way = ScriptedWay()
    async with open_session(way, ttl_s=365 * 24 * 3600.0):
        await trio.sleep(MAX_TTL_MS / 1000)
    opened, *kept = way.commands[:-1]
    assert opened == OpenSession(MAX_TTL_MS)
    assert len(kept) >= 2


@pytest.mark.parametrize("wrong", [0, -1, 2**40, 1.5, True])
@pytest.mark.parametrize("name", SessionLimits._fields)
def test_limits_that_no_leader_can_write_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(dledger.ConfigInvalid, match=f"limits.{name}"):
        WithSessions(Register(), SessionLimits()._replace(**{name: wrong}))


async def test_an_append_is_sent_again_until_it_is_answered_and_applied_once(
    autojump_clock: object,
) -> None:
    lost = ("after", FAILED)
    async with scripted(REFUSED, lost, FAILED, lost) as (way, session):
        appended = await session.append(b"one")
        assert way.register.bodies == [b"one"]
        assert (appended.sequence, appended.result, appended.repeated) == (1, 1, True)
        appended = await session.append(b"two")
        assert (appended.sequence, appended.result, appended.repeated) == (2, 2, False)


async def test_a_session_tells_the_group_which_answers_it_has(autojump_clock: object) -> None:
    async with scripted() as (way, session):
        for _ in range(3):
            await session.append(b"x")
        assert way.machine.table.kept(session.id, 2) is None
        assert way.machine.table.kept(session.id, 3) is not None


async def test_a_cancelled_append_is_settled_before_the_next_one(autojump_clock: object) -> None:
    async with scripted(FAILED, FAILED) as (way, session):
        with trio.move_on_after(0.01):
            await session.append(b"one")
        assert session.unsettled == 1
        appended = await session.append(b"two")
        assert way.register.bodies == [b"one", b"two"]
        assert (appended.sequence, appended.result) == (2, 2)


async def test_an_append_that_cannot_be_in_the_log_is_forgotten_when_the_time_is_over(
    autojump_clock: object,
) -> None:
    async with scripted(*[REFUSED] * 50) as (way, session):
        with pytest.raises(dledger.NotAppendedInTime, match="wait to be committed"):
            await session.append(b"never", timeout_s=1.0)
        assert session.unsettled == 0
        way.script = []
        assert (await session.append(b"one")).sequence == 1
        assert way.register.bodies == [b"one"]


async def test_a_discarded_entry_is_certainly_nowhere(autojump_clock: object) -> None:
    async with scripted(*[Discarded(1, 1)] * 50) as (_, session):
        with pytest.raises(dledger.NotAppendedInTime):
            await session.append(b"never", timeout_s=1.0)
        assert session.unsettled == 0


async def test_an_append_that_may_be_in_the_log_is_unknown_when_the_time_is_over(
    autojump_clock: object,
) -> None:
    async with scripted(("after", FAILED), *[REFUSED] * 50) as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.append_many([b"one", b"two"], timeout_s=1.0)
        assert (caught.value.sequence, caught.value.ended) == (1, False)
        assert caught.value.retry_safe is False
        way.script = []
        settled = await session.settle()
        assert [(each.sequence, each.result, each.repeated) for each in settled] == [
            (1, 1, True),
            (2, 2, True),
        ]
        assert way.register.bodies == [b"one", b"two"]
        assert await session.settle() == []


async def test_an_append_that_hangs_is_unknown_and_is_not_applied_twice(
    autojump_clock: object,
) -> None:
    async with scripted("hang") as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown):
            await session.append(b"one", timeout_s=1.0)
        assert (await session.append(b"two")).result == 2
        assert way.register.bodies == [b"one", b"two"]


async def test_an_answer_that_came_in_time_is_not_lost_to_the_deadline(
    autojump_clock: object,
) -> None:
    async with scripted() as (way, session):
        carry_out = way.carry_out

        async def slow(command: SessionCommand) -> list[SessionAnswer]:
            answers = await carry_out(command)
            scope.cancel()  # between the answer and the caller
            return answers

        way.carry_out = slow  # type: ignore[method-assign]
        with trio.CancelScope() as scope:
            assert (await session.append(b"one")).result == 1
        way.carry_out = carry_out  # type: ignore[method-assign]
        assert not scope.cancelled_caught


async def test_after_the_end_of_a_session_a_first_append_certainly_did_not_happen(
    autojump_clock: object,
) -> None:
    async with scripted() as (way, session):
        way.put(encode_expire(10**9))
        with pytest.raises(dledger.SessionExpired) as caught:
            await session.append(b"never")
        assert caught.value.retry_safe
        with pytest.raises(dledger.SessionExpired):
            await session.append(b"never")
        assert way.register.bodies == []


async def test_after_the_end_of_a_session_a_repeated_append_is_unknown_for_ever(
    autojump_clock: object,
) -> None:
    async with scripted(("after", FAILED)) as (way, session):
        with trio.move_on_after(0.01):
            await session.append(b"one")
        way.put(encode_expire(10**9))
        with pytest.raises(dledger.SessionExpired):
            await session.append(b"two")  # this one never left in a session that lived
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.settle()
        assert (caught.value.sequence, caught.value.ended) == (1, True)


async def test_a_repeated_append_that_finds_its_session_ended_is_unknown(
    autojump_clock: object,
) -> None:
    async with scripted(("after", FAILED)) as (way, session):

        async def expire() -> None:
            await trio.sleep(0.02)  # between the two attempts
            way.put(encode_expire(10**9))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(expire)
            with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
                await session.append(b"one")
        assert caught.value.ended
        assert way.register.bodies == [b"one"]


async def test_a_result_that_was_not_kept_is_a_typed_error_and_the_session_goes_on(
    autojump_clock: object,
) -> None:
    async with scripted() as (way, session):
        apply = way.register.apply
        way.register.apply = lambda entries: [object() for _ in apply(entries)]  # type: ignore[method-assign]
        with pytest.raises(dledger.ResultNotKept) as caught:
            await session.append(b"one")
        assert (caught.value.sequence, caught.value.index) == (1, 1)
        way.register.apply = apply  # type: ignore[method-assign]
        assert (await session.append(b"two")).sequence == 2
        assert way.register.bodies == [b"one", b"two"]


async def test_many_tasks_append_in_one_session_in_turns(autojump_clock: object) -> None:
    results: list[object] = []
    lost = ("after", FAILED)
    async with scripted(*[lost, None] * 20) as (way, session):

        async def append(body: bytes) -> None:
            results.append((await session.append(body)).result)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(append, b"%d" % number)
        assert sorted(way.register.bodies) == sorted(b"%d" % number for number in range(20))
        assert results == list(range(1, 21))


async def test_a_large_call_is_sent_in_parts_and_a_too_large_one_is_refused(
    autojump_clock: object,
) -> None:
    bodies = [b"%d" % number for number in range(300)]
    async with scripted(("after", FAILED), None, REFUSED, ("after", FAILED)) as (way, session):
        appended = await session.append_many(bodies)
        assert [each.result for each in appended] == list(range(1, 301))
        assert way.register.bodies == bodies
        sizes = [len(c.bodies) for c in way.commands if isinstance(c, AppendInSession)]
        assert max(sizes) == 128
        with pytest.raises(dledger.SessionFull):
            await session.append_many([b""] * (MOST_UNSETTLED + 1))
        assert (await session.append(b"more")).sequence == 301


async def test_a_call_of_which_a_part_was_applied_stays_to_be_settled(
    autojump_clock: object,
) -> None:
    bodies = [b"%d" % number for number in range(200)]
    async with scripted(None, *[REFUSED] * 99) as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.append_many(bodies, timeout_s=2.0)
        assert caught.value.sequence == 129
        assert session.unsettled == 72
        way.script = []
        await session.settle()
        assert way.register.bodies == bodies


async def test_a_body_that_is_too_large_costs_nothing_but_itself(autojump_clock: object) -> None:
    async with scripted(dledger.EntryTooLarge(9, 8)) as (way, session):
        with pytest.raises(dledger.EntryTooLarge):
            await session.append(b"large")
        assert (await session.append(b"small")).sequence == 1
        assert way.register.bodies == [b"small"]


async def test_an_idle_session_is_kept_alive_until_its_block_ends(autojump_clock: object) -> None:
    way = ScriptedWay()
    async with open_session(way, ttl_s=30.0) as session:
        await trio.sleep(100.0)
        assert len(way.commands) == 10
        way.script = [REFUSED] * 2
        await trio.sleep(100.0)
        assert session.id in way.machine.table
    assert isinstance(way.commands[-1], CloseSession)
    assert len(way.machine.table) == 0


async def test_the_error_of_a_block_leaves_as_itself(autojump_clock: object) -> None:
    way = ScriptedWay()
    with pytest.raises(KeyError, match="mine"):
        async with open_session(way):
            raise KeyError("mine")
    way.script = [REFUSED] * 999
    with pytest.raises(dledger.NotAppendedInTime):
        async with open_session(way, timeout_s=1.0):
            raise KeyError("mine")


# --- real nodes -----------------------------------------------------------------------------------


class Group(Members):
    """Members of which each keeps a register."""

    def __init__(self, folder: Path, nodes: int, nursery: trio.Nursery) -> None:
        quick = {"election_timeout_ms": 200, "heartbeat_interval_ms": 40}
        store = replace(SMALL_FILES, max_body_bytes=64 * 1024)
        super().__init__(folder, nursery, nodes, store=store, **quick)
        self.registers: dict[str, Register] = {}

    async def begin(self, node_id: str) -> None:
        register = self.registers[node_id] = Register()
        await self.start(node_id, dledger.WithSessions(register))

    async def same(self, count: int) -> list[bytes]:
        """The bodies that every running member has applied; there must be `count`."""
        with trio.fail_after(10):
            last = max(node.status().last_index for node in self.nodes.values())
            for node in self.nodes.values():
                await node.wait_applied(last)
        found = [self.registers[node_id].bodies for node_id in self.nodes]
        assert all(bodies == found[0] for bodies in found)
        assert len(found[0]) == count
        return found[0]


@asynccontextmanager
async def running(folder: Path, nodes: int) -> AsyncIterator[Group]:
    async with trio.open_nursery() as nursery:
        group = Group(folder, nodes, nursery)
        for node_id in group.peers:
            await group.begin(node_id)
        yield group
        for node_id in list(group.nodes):
            await group.stop(node_id)


async def test_a_session_of_a_node_appends_from_the_leader_and_from_a_follower(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        follower = next(node_id for node_id in group.nodes if node_id != leader)
        async with group.nodes[leader].session() as here, group.nodes[follower].session() as there:
            assert (await here.append(b"one")).result == 1
            assert (await there.append(b"two")).result == 2
            many = await there.append_many([b"three", b"four"])
            assert [each.result for each in many] == [3, 4]
        assert await group.same(4) == [b"one", b"two", b"three", b"four"]


async def test_an_append_that_loses_its_leader_is_applied_once_by_the_next(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        follower = next(node_id for node_id in group.nodes if node_id != leader)
        async with group.nodes[follower].session() as session:
            await session.append(b"0")
            sent = 1
            for _ in range(3):
                leader = await group.leader()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_append_some, session, sent, 20)
                    if leader != follower:
                        await trio.sleep(0.01)
                        await group.stop(leader)
                        await group.begin(leader)
                sent += 20
        assert await group.same(sent) == [b"%d" % number for number in range(sent)]


async def _append_some(session: Session, first: int, count: int) -> None:
    for number in range(first, first + count):
        await session.append(b"%d" % number)


async def test_a_network_client_appends_in_a_session_and_survives_a_change_of_the_leader(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as group:
        client = dledger.GroupClient("g", group.peers)
        async with client.session() as session:
            first = await session.append(b"one")
            assert (first.result, first.repeated) == (1, False)
            leader = await group.leader()
            await group.stop(leader)
            assert (await session.append(b"two")).result == 2
            await group.begin(leader)
            with pytest.raises(dledger.EntryTooLarge):
                await session.append(bytes(64 * 1024))
            assert (await session.append(b"three")).sequence == 3
        assert await group.same(3) == [b"one", b"two", b"three"]


async def test_plain_appends_of_a_group_with_sessions_are_the_bodies_that_were_given(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as group:
        node = group.nodes[await group.leader()]
        first = await node.append(b"plain")
        tricky = await node.append(MARK + b"\x01\x05")
        assert (first.result, tricky.result) == (1, 2)
        assert [entry.body for entry in node.entries(first.index, 48)] == [b"plain"]
        assert group.registers["n0"].bodies == [b"plain", MARK + b"\x01\x05"]
        await group.stop("n0")
        await group.begin("n0")
        await group.leader()
        assert group.registers["n0"].bodies == [b"plain", MARK + b"\x01\x05"]


async def test_a_group_without_sessions_says_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    peers = {"n0": f"127.0.0.1:{port}"}
    config = dledger.NodeConfig(group="g", node_id="n0", peers=peers, data_dir=tmp_path, new=True)
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        with pytest.raises(dledger.SessionsOff):
            node.session()
        with pytest.raises(dledger.SessionsOff, match="wrap the machine"):
            async with dledger.GroupClient("g", peers).session():
                raise AssertionError("opened")
        assert (await node.append(MARK)).index == 1


class LeadingNode:
    """A node that leads and applies at once."""

    term = 1
    is_ready_leader = True

    def __init__(self) -> None:
        self.way = ScriptedWay()

    def submit_envelopes(
        self, bodies: Sequence[dledger.entry.Body], done: Done, at_once: bool = False
    ) -> None:
        answers = self.way.put(*[bytes(b) for b in bodies if isinstance(b, bytes)])
        appended = [dledger.Appended(0, 1, 0, answer) for answer in answers]
        trio.lowlevel.current_trio_token().run_sync_soon(done, appended)


async def test_a_leader_ends_sessions_by_its_own_time_and_through_the_log(
    autojump_clock: object,
) -> None:
    node = LeadingNode()
    gate = SessionGate(node, node.way.machine)
    table = node.way.machine.table
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.run)
        (opened,) = await gate.carry_out(dledger.sessions.session_entry.OpenSession(10_000))
        await trio.sleep(8.0)
        assert opened.number in table
        await gate.carry_out(dledger.sessions.session_entry.KeepSessionAlive(opened.number))
        await trio.sleep(9.0)
        assert opened.number in table
        await trio.sleep(3.0)
        assert opened.number not in table
        nursery.cancel_scope.cancel()


async def test_a_call_whose_time_is_over_tells_what_became_of_its_first_bodies(
    autojump_clock: object,
) -> None:
    bodies = [b"%d" % number for number in range(MOST_BODIES_AT_ONCE + 10)]
    async with scripted(None, *[FAILED] * 50) as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.append_many(bodies, timeout_s=1.0)
        settled = caught.value.settled
        applied = [each for each in settled if isinstance(each, dledger.SessionAppended)]
        assert [each.sequence for each in applied] == list(range(1, MOST_BODIES_AT_ONCE + 1))
        assert caught.value.sequence == MOST_BODIES_AT_ONCE + 1
        way.script = []
        assert len(await session.settle()) == 10
        assert way.register.bodies == bodies


async def test_settle_tells_what_it_learned_before_its_time_was_over(
    autojump_clock: object,
) -> None:
    bodies = [b"%d" % number for number in range(MOST_BODIES_AT_ONCE + 10)]
    async with scripted(*[FAILED] * 500) as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.append_many(bodies, timeout_s=1.0)
        assert caught.value.settled == ()
        way.script = [None, *[FAILED] * 50]
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.settle(timeout_s=1.0)
        assert len(caught.value.settled) == MOST_BODIES_AT_ONCE


async def test_a_refusal_in_the_middle_of_a_call_tells_what_became_of_its_first_bodies(
    autojump_clock: object,
) -> None:
    bodies = [b"%d" % number for number in range(2 * MOST_BODIES_AT_ONCE + 10)]
    first = range(1, MOST_BODIES_AT_ONCE + 1)
    second = range(first.stop, first.stop + MOST_BODIES_AT_ONCE)
    async with scripted(None, NodeClosing()) as (way, session):
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.append_many(bodies)
        applied = [
            each for each in caught.value.settled if isinstance(each, dledger.SessionAppended)
        ]
        assert [each.sequence for each in applied] == list(first)
        way.script = [None, NodeClosing()]
        with pytest.raises(dledger.SessionOutcomeUnknown) as caught:
            await session.settle()
        applied = [
            each for each in caught.value.settled if isinstance(each, dledger.SessionAppended)
        ]
        assert [each.sequence for each in applied] == list(second)
        assert len(await session.settle()) == 10
        assert way.register.bodies == bodies


async def test_a_result_that_was_not_kept_hides_none_of_the_others(autojump_clock: object) -> None:
    async with scripted() as (way, session):
        apply = way.register.apply

        def apply_with_an_odd_result(entries: Sequence[Entry]) -> list[object]:
            results = apply(entries)
            return [object() if result == 2 else result for result in results]

        way.register.apply = apply_with_an_odd_result  # type: ignore[method-assign]
        with pytest.raises(dledger.ResultNotKept) as caught:
            await session.append_many([b"one", b"two", b"three"])
        one, two, three = caught.value.settled
        assert two is caught.value
        assert [each.result for each in (one, three)] == [1, 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize("bodies", [["text"], [b"a", "b"], [bytearray(b"a")], b"abc", [None]])
async def test_a_session_takes_no_body_that_is_not_bytes(
    autojump_clock: object, bodies: list[bytes]
) -> None:
    async with scripted() as (_, session):
        with pytest.raises(dledger.BodyInvalid):
            await session.append_many(bodies)
        assert (await session.append(b"one")).sequence == 1
