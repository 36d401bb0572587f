"""`dledger.connect`: against scripted members in virtual time, and against real groups."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import dledger
from dledger.client.client_errors import (
    AnswerOverdue,
    AnswerUnreadable,
    ConnectionLost,
    TooManyBodies,
)
from dledger.entry import MAX_BODY_BYTES, Entry, Magic
from dledger.errors import LeadershipLost, LogFull, NotLeader, OutsideLog
from dledger.free_ports import free_ports
from dledger.wire.client_protocol import Operation, Request, encode_answer, encode_entries
from tests.dledger.client.fake_member import (
    GROUP,
    Answer,
    FakeMember,
    appended,
    fake_group,
    silent,
)

QUIET_S = 0.02


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=QUIET_S)


# --- scripted members -----------------------------------------------------------------------------


async def test_appends_of_many_tasks_share_one_connection(clock: trio.testing.MockClock) -> None:
    async with fake_group(3) as group:
        leader = group.elect(1, term=1)
        async with dledger.connect(group.peers, group=GROUP) as log:
            async with trio.open_nursery() as nursery:
                for number in range(500):
                    nursery.start_soon(log.append, b"%d" % number)
            assert len(leader.asked) == 500
            assert len(leader.open) == 1
        assert [member.opened <= 1 for member in group.members] == [True] * 3


async def test_what_was_refused_is_tried_again_and_what_is_useless_is_not(
    clock: trio.testing.MockClock,
) -> None:
    answers: list[dledger.DLedgerError] = [LogFull(1, 1), LogFull(1, 1)]

    def script(request: Request) -> Answer:
        return answers.pop() if answers else appended(request)

    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        leader.script = script
        async with dledger.connect(group.peers, group=GROUP) as log:
            await log.append(b"x")
            assert len(leader.asked) == 3
            answers.append(dledger.EntryTooLarge(9, 5))
            with pytest.raises(dledger.EntryTooLarge) as refused:
                await log.append(b"too large")
            assert (refused.value.body_bytes, refused.value.limit_bytes) == (9, 5)
            assert len(leader.asked) == 4


@pytest.mark.parametrize("how", ["the connection breaks", "leadership is lost", "nonsense"])
async def test_what_is_unknown_is_not_tried_again(how: str, clock: trio.testing.MockClock) -> None:
    def script(request: Request) -> Answer:
        match how:
            case "the connection breaks":
                raise trio.BrokenResourceError
            case "leadership is lost":
                return LeadershipLost(7, 1, None)
            case _:
                return encode_answer(request.request_id, [0, 0, 2], bytes(24))

    async with fake_group(1) as group:
        leader = group.elect(0, term=1)
        leader.script = script
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises((ConnectionLost, LeadershipLost, AnswerUnreadable)) as failed:
                await log.append(b"x")
            assert isinstance(failed.value, dledger.OutcomeUnknown)
            await trio.sleep(60.0)
            assert len(leader.asked) == 1


async def test_when_the_time_is_over_the_error_says_whether_it_may_have_happened(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(2) as group:
        group[0].hear("n1", 1)
        async with dledger.connect(group.peers, group=GROUP, timeout_s=3.0) as log:
            with pytest.raises(dledger.NotAppendedInTime, match="n0 takes n1 for the leader"):
                await log.append(b"x")
            leader = group.elect(1, term=1)
            leader.script = lambda _: LogFull(1, 1)
            with pytest.raises(dledger.NotAppendedInTime, match="wait to be committed"):
                await log.append(b"x", timeout_s=1.0)
            leader.script = silent
            with pytest.raises(AnswerOverdue, match="within 1 s"):
                await log.append(b"x", timeout_s=1.0)


async def test_appends_go_on_with_the_next_leader(clock: trio.testing.MockClock) -> None:
    async with fake_group(2) as group:
        group.elect(0, term=1).script = lambda _: NotLeader("n1", 2)
        async with dledger.connect(group.peers, group=GROUP) as log:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.append, b"x")
                await trio.sleep(0.5)
                group.elect(1, term=2)
            assert len(group[1].asked) == 1


async def test_more_than_one_request_can_carry_is_refused_before_it_leaves() -> None:
    async with dledger.connect("127.0.0.1:1", group=GROUP) as log:
        assert await log.append_many([]) == []
        for bodies in ([b"x"] * 5000, [bytes(MAX_BODY_BYTES // 2 + 1)] * 2):
            with pytest.raises(TooManyBodies):
                await log.append_many(bodies)


def test_members_that_cannot_be_are_refused() -> None:
    async def connect(peers: object) -> None:
        async with dledger.connect(peers, group=GROUP):  # type: ignore[arg-type]
            raise AssertionError("connected")

    impossible: tuple[object, ...] = ("", [], {}, "n0=127.0.0.1", {"n0": "127.0.0.1:x"})
    for peers in impossible:
        with pytest.raises(dledger.ConfigInvalid):
            trio.run(connect, peers)


async def test_the_error_of_a_block_leaves_as_itself(clock: trio.testing.MockClock) -> None:
    async with fake_group(1) as group:
        group.elect(0, term=1)

        async def use() -> None:
            async with dledger.connect(group.peers, group=GROUP) as log:
                await log.append(b"x")
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await use()


# --- following the log: scripted members ----------------------------------------------------------


class Log:
    """Entries that scripted members serve."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.begins: dict[str, int] = {}
        self.most = 3

    def grow(self, count: int) -> None:
        for _ in range(count):
            index = len(self.entries)
            self.entries.append(Entry(index, 1, 64 * index, Magic.NORMAL, b"%d" % index))

    def serve(self, member: FakeMember) -> None:
        def script(request: Request) -> Answer:
            last = len(self.entries) - 1
            if request.operation is Operation.STATUS:
                begin = self.begins.get(member.node_id, 0)
                status = {"first_index": begin, "committed": last, "durable": last}
                return encode_answer(request.request_id, status)
            assert request.operation is Operation.ENTRIES
            first = max(request.numbers[0], self.begins.get(member.node_id, 0))
            found = self.entries[first : first + self.most]
            return encode_entries(request.request_id, found)

        member.script = script


async def test_a_tail_goes_on_with_another_member_without_a_gap_or_a_repeat(
    clock: trio.testing.MockClock,
) -> None:
    log = Log()
    log.grow(40)
    async with fake_group(3) as group:
        group.elect(0, term=1)
        for member in group.members:
            log.serve(member)
        async with dledger.connect(group.peers, group=GROUP) as remote:
            read: list[int] = []
            async for entry in remote.tail(5):
                read.append(entry.index)
                serving = next((each for each in group.members if each.open), group[0])
                if entry.index % 10 == 9:
                    await serving.cut()
                elif entry.index == 22:
                    serving.frozen = True
                elif entry.index == 25:
                    group.elect(0, term=2)
                    for member in group.members:
                        member.frozen = False
                if entry.index == 39:
                    break
            assert read == list(range(5, 40))


async def test_a_slow_reader_has_no_more_fetched_for_it_than_one_answer(
    clock: trio.testing.MockClock,
) -> None:
    log = Log()
    log.grow(40)
    async with fake_group(1) as group:
        member = group.elect(0, term=1)
        log.serve(member)
        async with dledger.connect(group.peers, group=GROUP) as remote:
            entries = aiter(remote.tail())
            for number in range(10):
                assert (await anext(entries)).index == number
                await trio.sleep(100.0)
                assert len(member.asked) == number // log.most + 1


async def test_a_member_that_hears_no_leader_is_not_followed_for_ever(
    clock: trio.testing.MockClock,
) -> None:
    log, stale = Log(), Log()
    log.grow(4)
    stale.grow(2)
    async with fake_group(2) as group:
        group.elect(0, term=1)
        log.serve(group[0])
        group[1].hear(None, 1)
        stale.serve(group[1])
        async with dledger.connect(group.peers, group=GROUP) as remote:
            with trio.fail_after(30.0):
                tail = aiter(remote.tail())
                assert [(await anext(tail)).index for _ in range(4)] == [0, 1, 2, 3]


async def test_where_one_member_s_log_begins_later_another_is_asked(
    clock: trio.testing.MockClock,
) -> None:
    log = Log()
    log.grow(8)
    async with fake_group(2) as group:
        group.elect(0, term=1)
        log.begins = {"n1": 5}
        for member in group.members:
            log.serve(member)
        for _ in range(4):  # whichever of them is asked first
            async with dledger.connect(group.peers, group=GROUP) as remote:
                tail = aiter(remote.tail(2))
                assert [(await anext(tail)).index for _ in range(6)] == [2, 3, 4, 5, 6, 7]
        log.begins = {"n0": 4, "n1": 5}
        async with dledger.connect(group.peers, group=GROUP) as remote:
            with pytest.raises(OutsideLog) as behind:
                await anext(aiter(remote.tail(2)))
            assert behind.value.first in (4, 5)
            assert behind.value.last == 7, "the log's end, not that of one answer"
            with pytest.raises(OutsideLog) as behind:
                await remote.read(2)
            assert (behind.value.first, behind.value.last) == (4, 7)
            with pytest.raises(OutsideLog) as beyond:
                await remote.read(8)
            assert (beyond.value.first, beyond.value.last) == (4, 7)


async def test_a_tail_of_a_group_that_is_not_there_ends_with_the_reason(
    clock: trio.testing.MockClock,
) -> None:
    (nobody,) = free_ports(1)
    async with dledger.connect(f"127.0.0.1:{nobody}", group=GROUP, timeout_s=3.0) as remote:
        began = trio.current_time()
        with pytest.raises(dledger.GroupUnreachable, match="connection refused"):
            await anext(aiter(remote.tail()))
        assert 3.0 <= trio.current_time() - began < 4.0


async def test_a_tail_that_was_answered_once_outlives_an_outage_and_says_so(
    clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    log.grow(1)
    async with fake_group(1) as group:
        log.serve(group.elect(0, term=1))
        async with dledger.connect(group.peers, group=GROUP, timeout_s=3.0) as remote:
            tail = aiter(remote.tail())
            assert (await anext(tail)).index == 0
            group[0].frozen = True
            await group[0].cut()
            log.grow(1)
            async with trio.open_nursery() as nursery:

                async def thaw() -> None:
                    await trio.sleep(60.0)
                    group[0].frozen = False
                    await group[0].cut()

                nursery.start_soon(thaw)
                assert (await anext(tail)).index == 1
            assert caplog.text.count("no member of group g answers") == 1


def test_a_call_outside_of_trio_names_the_bridge() -> None:
    async def connecting() -> None:
        with pytest.raises(dledger.NotInTrio, match=r"dledger\.for_asyncio\.connect"):
            async with dledger.connect("127.0.0.1:1", group=GROUP):
                pytest.fail("connected")

    asyncio.run(connecting())


@pytest.mark.parametrize("rows", [[[7, 1, 0, 1, 0]], [[9, 1, 0, 1, 0], [11, 1, 0, 1, 0]], "x"])
async def test_a_member_that_answers_nonsense_is_left_for_another(
    rows: object, clock: trio.testing.MockClock
) -> None:
    log = Log()
    log.grow(12)
    async with fake_group(2) as group:
        group.elect(0, term=1)
        log.serve(group[0])
        group[1].script = lambda request: encode_answer(request.request_id, rows)
        async with dledger.connect(group.peers, group=GROUP) as remote:
            tail = aiter(remote.tail(9))
            assert [(await anext(tail)).index for _ in range(3)] == [9, 10, 11]


# --- a real group ---------------------------------------------------------------------------------


class Members:
    """Three nodes of a group in this process, which may be stopped and started."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.nursery = nursery
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self.nodes: dict[str, dledger.Node] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._closed: dict[str, trio.Event] = {}

    async def start(self, node_id: str) -> None:
        self._closed[node_id] = trio.Event()
        await self.nursery.start(self._run, node_id)

    async def _run(self, node_id: str, task_status: trio.TaskStatus[None]) -> None:
        config = dledger.NodeConfig(
            group=GROUP,
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            election_timeout_ms=200,
            heartbeat_interval_ms=40,
        )
        machine = dledger.WithSessions(dledger.LogOnly())
        with trio.CancelScope() as self._scopes[node_id]:
            async with dledger.open_node(config, machine) as node:
                self.nodes[node_id] = node
                task_status.started()
                await trio.sleep_forever()
        self._closed[node_id].set()

    async def stop(self, node_id: str) -> None:
        """Stop a node; its folder is free afterwards."""
        self._scopes.pop(node_id).cancel()
        del self.nodes[node_id]
        await self._closed[node_id].wait()

    def leader(self) -> str | None:
        return next((name for name, node in self.nodes.items() if node.is_ready_leader), None)

    async def wait_leader(self) -> str:
        with trio.fail_after(30):
            while True:
                if (found := self.leader()) is not None:
                    return found
                await trio.sleep(0.01)


@asynccontextmanager
async def real_group(folder: Path) -> AsyncIterator[Members]:
    async with trio.open_nursery() as nursery:
        members = Members(folder, nursery)
        for node_id in members.peers:
            await members.start(node_id)
        yield members
        nursery.cancel_scope.cancel()


async def test_a_program_appends_reads_and_follows_over_the_network(tmp_path: Path) -> None:
    async with real_group(tmp_path) as members:
        seed = members.peers["n2"]
        with trio.fail_after(60):
            async with dledger.connect(seed, group=GROUP) as log:
                first = await log.append(b"one")
                two, three = await log.append_many([b"two", b"three"])
                assert [two.index, three.index] == [first.index + 1, first.index + 2]
                assert (await log.read(two.index)).body == b"two"
                with pytest.raises(OutsideLog) as beyond:
                    await log.read(three.index + 1000)
                assert (beyond.value.first, beyond.value.last) == (0, three.index)
                so_far = [entry.body async for entry in log.tail(first.index, follow=False)]
                assert so_far == [b"one", b"two", b"three"]
                status = await log.status()
                assert status["node_id"] == members.leader()
                assert (await log.status("n1"))["node_id"] == "n1"
                with pytest.raises(dledger.GroupUnreachable):
                    await log.status("n9")
                async with log.session() as session:
                    assert not (await session.append(b"four")).repeated
                with pytest.raises(dledger.EntryTooLarge):
                    await log.append(bytes(MAX_BODY_BYTES + 1))


async def test_a_tail_sees_every_append_once_while_leaders_change(tmp_path: Path) -> None:
    async with real_group(tmp_path) as members:
        seen: list[Entry] = []
        seen_last = trio.Event()

        async def follow(log: dledger.RemoteLog) -> None:
            async for entry in log.tail():
                seen.append(entry)
                if entry.body == b"last":
                    seen_last.set()

        with trio.fail_after(120):
            async with (
                dledger.connect(members.peers, group=GROUP) as log,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(follow, log)
                numbers, over, acknowledged = itertools.count(), False, Counter[bytes]()

                async def load() -> None:
                    async with log.session() as session:
                        while not over:
                            body = b"number %d" % next(numbers)
                            await session.append(body)
                            acknowledged[body] += 1

                async with trio.open_nursery() as loads:
                    for _ in range(5):
                        loads.start_soon(load)
                    for _ in range(3):
                        leader = await members.wait_leader()
                        await trio.sleep(0.3)
                        await members.stop(leader)
                        await members.wait_leader()
                        await trio.sleep(0.3)
                        await members.start(leader)
                    over = True
                await log.append(b"last")
                await seen_last.wait()
                nursery.cancel_scope.cancel()
        assert [entry.index for entry in seen] == list(range(len(seen)))
        assert len(acknowledged) > 50
        text = b"\0".join(entry.body for entry in seen)
        assert all(text.count(body + b"\0") >= 1 for body in acknowledged)


async def test_appends_go_on_while_leadership_is_handed_over(tmp_path: Path) -> None:
    async with real_group(tmp_path) as members:
        done, some = 0, trio.Event()

        async def load(log: dledger.RemoteLog) -> None:
            nonlocal done
            while done < 300:
                try:
                    await log.append(b"x")
                except LeadershipLost:
                    continue
                done += 1
                if done == 100:
                    some.set()

        with trio.fail_after(60):
            async with dledger.connect(members.peers, group=GROUP) as log:
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(load, log)
                    await some.wait()
                    leader = await members.wait_leader()
                    await members.nodes[leader].transfer_leadership()
                assert (await log.status())["node_id"] != leader
