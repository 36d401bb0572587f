"""Consumer groups that an operator moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from broker.features import REGISTRY, empty_state
from broker.formats.commands import RaiseFormat
from broker.limits import BrokerLimits
from broker.log.entry import INCARNATIONS_VERSION, encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured, restored
from broker.offsets.begun_resets import RESET_MS
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.offsets.generations import Generations
from broker.offsets.state import OFFSETS
from broker.resets.commands import EndReset, ResetOffsets
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.delay.test_broker_delay import folded
from tests.broker.filters.test_broker_filters import holds_one
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, served, until
from tests.broker.parts_alone import parts_alone
from tests.examples import examples


async def reset(client: Client, timestamp: int = 0, **more: Any) -> Command:
    fields = {"group": "g", "topic": "T", "timestamp": timestamp, "isForce": "true", **more}
    return await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)


async def commit(client: Client, offset: int, queue_id: int = 0) -> int:
    fields: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": queue_id,
        "commitOffset": offset,
    }
    return (await client.ask(15, **fields)).code


async def committed(client: Client, queue_id: int = 0) -> int:
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
    return int((await client.ask(14, **fields)).fields["offset"])


@pytest.mark.feature("F49")
async def test_a_group_goes_back_to_a_time_and_reads_on_from_there(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(10):
            clock.now_ms = START_MS + number
            await client.send("T", b"%d" % number)
        await commit(client, 10)
        told = await reset(client, START_MS + 4)
        assert told.code == 0
        assert b'"queueId":0,"topic":"T"}:4' in told.body
        assert await committed(client) == 4
        # What the consumer commits before it knows does not count, nor what its pulls bring along.
        assert await commit(client, 9) == 0
        reply = await client.pull("T", 10, commitOffset=10, sysFlag=5)
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED
        assert reply.fields["nextBeginOffset"] == "4"
        # A client counts from these how far behind it is.
        assert (reply.fields["minOffset"], reply.fields["maxOffset"]) == ("0", "10")
        await client.ask(28)
        assert await committed(client) == 4
        reply = await client.pull("T", 4)
        assert [one.body for one in decode_records(reply.body)][:2] == [b"4", b"5"]
        await client.send("T", b"behind it")
        assert await commit(client, 6) == 0
        assert await committed(client) == 6
        assert (await client.pull("T", 11)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_consumer_that_reads_on_faster_than_the_log_is_not_moved_again(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x")
        await commit(client, 5)
        for moved_to in (3, 1):
            await reset(client, queueId=0, offset=moved_to)
            assert await committed(client) == moved_to
            codes: dict[int, int] = {}

            async def pull(offset: int, codes: dict[int, int] = codes) -> None:
                codes[offset] = (await client.pull("T", offset)).code

            # Both are looked at before the entry is applied that ends the reset.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull, moved_to)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(pull, 5)
            assert codes[moved_to] == ResponseCode.SUCCESS
            assert codes[5] == ResponseCode.PULL_NOT_FOUND


async def test_what_a_pull_has_brought_before_the_reset_does_not_undo_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        for _ in range(5):
            await client.send("T", b"x")
        await client.heartbeat("c", "g", "T")
        await client.pull("T", 5, sysFlag=1, commitOffset=5)  # waits for the next tick
        await reset(client, queueId=0, offset=2)
        await client.pull("T", 2)
        broker.requests.tick()
        await client.send("T", b"behind it in the log", 1)
        assert await committed(client) == 2


async def test_a_pull_that_waits_is_told_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client, other = (Client(nursery, str(broker.config.address)) for _ in range(2))
        for _ in range(3):
            await client.send("T", b"x")
        await commit(client, 3)
        found: list[Command] = []

        async def wait() -> None:
            found.append(await client.pull("T", 3, sysFlag=6, suspendTimeoutMillis=15_000))

        with trio.fail_after(5):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(wait)
                await until(lambda: holds_one(other))
                assert (await reset(other)).code == 0
        assert found[0].code == ResponseCode.PULL_OFFSET_MOVED
        assert found[0].fields["nextBeginOffset"] == "0"


@pytest.mark.feature("F50")
async def test_a_group_without_members_is_moved_and_so_is_one_queue_of_it(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for queue_id in (0, 1, 1, 1):
            await client.send("T", b"x", queue_id)
        for queue_id in (0, 1):
            await commit(client, 1, queue_id)
        told = await reset(client, queueId=1, offset=3)
        assert told.body.count(b"brokerName") == 1
        assert [await committed(client, queue_id) for queue_id in (0, 1)] == [1, 3]
        assert (await reset(client, -1)).code == 0  # to the end
        assert [await committed(client, queue_id) for queue_id in (0, 1)] == [1, 3]
        assert (await reset(client, 0)).code == 0
        assert [await committed(client, queue_id) for queue_id in (0, 1)] == [0, 0]


async def test_without_force_a_group_goes_back_only(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x")
        await commit(client, 2)
        await reset(client, -1, isForce="false")
        assert await committed(client) == 2
        await reset(client, 0, isForce="false")
        assert await committed(client) == 0


@pytest.mark.feature("F49")
async def test_a_new_leader_tells_the_group_that_it_was_moved(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x")
        await commit(client, 5)
        assert (await reset(client)).code == 0
    async with served(tmp_path) as client:
        assert (await client.pull("T", 5)).fields["nextBeginOffset"] == "0"
        assert (await client.pull("T", 0)).code == 0
        await client.send("T", b"behind it")
        assert (await client.pull("T", 5)).code == 0


async def test_a_move_that_cannot_be_is_refused(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], int]] = [
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "absent"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 0, "offset": 6}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 0, "offset": 1 << 62}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "soon"}, ResponseCode.SYSTEM_ERROR),
    ]
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x")
        await commit(client, 5)
        for more, code in refused:
            fields = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true", **more}
            told = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
            assert told.code == code, more
            assert await committed(client) == 5


async def test_groups_with_offsets_are_bounded(tmp_path: Path) -> None:
    async with served(tmp_path, limits=BrokerLimits(max_offset_tables=1)) as client:
        await client.send("T", b"x")
        await client.send("U", b"x")
        await client.heartbeat("c", "g", "T")
        assert (await reset(client)).code == 0
        assert (await reset(client, topic="U")).code == ResponseCode.SYSTEM_BUSY


# --- the fold -------------------------------------------------------------------------------------


def test_commits_count_again_once_the_group_reads_where_it_was_moved() -> None:
    log, state = Log(), empty_state()
    with_topic(log)

    def commit_at(offset: int) -> None:
        one = CommittedOffset("g", "A", 0, offset)
        log.append(encode_log_command(CommitOffsets([one], 1, 1 << 40)))

    def now() -> int | None:
        fold(state, log.entries)
        log.entries.clear()
        return state[OFFSETS].committed("g", "A", 0)

    commit_at(50)
    log.append(encode_log_command(ResetOffsets("g", "A", {0: 7, 1: 8}, 1, log.end)))
    commit_at(51)
    assert now() == 7
    log.append(encode_log_command(EndReset("g", "A", 0, 6)))  # of an earlier move
    commit_at(52)
    assert now() == 7
    assert restored(captured(state), REGISTRY) == state
    log.append(encode_log_command(EndReset("g", "A", 0, 7)))
    commit_at(9)
    assert now() == 9
    assert state[OFFSETS].resets == {("g", "A"): {1: 8}}
    log.append(encode_log_command(DeleteTopic("A", 1, with_locks=True)))
    assert now() is None
    assert not state[OFFSETS].resets


@pytest.mark.parametrize(
    ("topic", "offsets"), [("absent", {0: 1}), ("A", {}), ("A", {0: -1}), ("A", {-1: 1})]
)
def test_a_malformed_move_is_passed_over(topic: str, offsets: dict[int, int]) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    command = ResetOffsets("g", topic, {0: 1}, 1, 1 << 40)
    object.__setattr__(command, "offsets", offsets)  # no broker makes one without any
    log.append(encode_log_command(command))
    assert folded(log, state)[1:] == [False]
    assert state[OFFSETS].tables == {}


def test_a_move_in_a_topic_that_was_made_again_meanwhile_is_passed_over() -> None:
    log, state = Log(), empty_state()
    topic = PutTopic(TopicConfig("A", 2, 2), 5, max_topics=20)
    log.append(encode_log_command(topic))
    late = encode_log_command(ResetOffsets("g", "A", {0: 7}, 1, log.end))
    log.append(encode_log_command(DeleteTopic("A", 1, with_locks=True)))
    log.append(encode_log_command(topic))
    log.append(late)
    assert folded(log, state) == [True, True, True, False]
    assert state[OFFSETS].tables == state[OFFSETS].resets == {}


# --- generations ----------------------------------------------------------------------------------


@asynccontextmanager
async def members(
    tmp_path: Path, count: int = 2, clock: Clock | None = None
) -> AsyncIterator[list[Client]]:
    """Members of group "g" at a queue of ten messages, in a log of the newest format."""
    async with running_broker(tmp_path, clock=clock or Clock()) as (broker, nursery):
        clients = [Client(nursery, str(broker.config.address)) for _ in range(count)]
        raised = encode_log_command(RaiseFormat(INCARNATIONS_VERSION))
        broker.parts.log.submit([raised], lambda _outcome: None)
        if "T" not in broker.machine.state[TOPICS].configs:
            for number in range(10):
                await clients[0].send("T", b"%d" % number)
        for number, client in enumerate(clients):
            await client.heartbeat(f"c{number}", "g", "T")
        yield clients


async def bring(client: Client, at: int, offset: int) -> Command:
    """A pull that brings a commit along, and what comes of it in the log."""
    reply = await client.pull("T", at, sysFlag=5, commitOffset=offset)
    await commit(client, 100 + at, queue_id=1)  # goes into the log behind it
    return reply


@pytest.mark.parametrize(("target", "moved_to"), [(-1, 10), (0, 0)])
async def test_a_slow_member_does_not_undo_a_reset_that_another_one_has_seen(
    tmp_path: Path, target: int, moved_to: int
) -> None:
    async with members(tmp_path) as (slow, quick):
        assert (await slow.pull("T", 0)).code == 0
        assert await commit(slow, 4) == 0
        await reset(quick, target, queueId=0)
        assert await committed(quick) == moved_to
        await quick.pull("T", moved_to)  # the group reads there now
        for offset in (3, 5, 9):
            assert await commit(slow, offset) == 0
            assert (await bring(slow, 10 if moved_to == 0 else 5, offset)).code == 21
            assert await committed(quick) == moved_to
        # It was told now. What it had in work before, it still must not commit.
        await slow.pull("T", moved_to)
        if moved_to:
            await commit(slow, 6)
            assert await committed(quick) == moved_to
            await slow.send("T", b"new")
            await slow.pull("T", 10)
            await commit(slow, 11)
            assert await committed(quick) == 11
        else:
            await commit(slow, 10)  # it was given them all once more
            assert await committed(quick) == 10


async def test_a_pull_that_begins_where_the_group_was_moved_brings_nothing_from_before(
    tmp_path: Path,
) -> None:
    async with members(tmp_path) as (one, other):
        await commit(one, 10)
        await reset(other, queueId=0)
        assert await committed(one) == 0
        assert (await bring(one, 0, 10)).code == 0
        assert await committed(other) == 0
        await bring(one, 4, 4)
        assert await committed(other) == 4


async def test_a_member_that_waits_just_where_its_group_is_moved_is_told_as_well(
    tmp_path: Path,
) -> None:
    async with members(tmp_path) as (slow, other):
        await slow.pull("T", 0)
        await reset(other, -1, queueId=0)
        told = await slow.pull("T", 10)
        assert (told.code, told.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "10")
        assert (await slow.pull("T", 10)).code == ResponseCode.PULL_NOT_FOUND
        await commit(slow, 2)
        assert await committed(other) == 10


async def test_a_second_reset_begins_another_generation(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, other):
        for offset in (7, 2):
            await reset(other, queueId=0, offset=offset)
            assert (await one.pull("T", 10)).fields["nextBeginOffset"] == str(offset)
            assert (await one.pull("T", offset)).code == 0
        await commit(other, 8)
        await reset(other, queueId=0, offset=5)
        await commit(one, 9)  # of the second
        assert await committed(other) == 5


async def test_the_next_leader_tells_commits_from_before_as_well(tmp_path: Path) -> None:
    clock = Clock()
    async with members(tmp_path, clock=clock) as (slow, quick):
        await slow.pull("T", 0)
        await reset(quick, -1, queueId=0)
        assert await committed(quick) == 10
        await quick.pull("T", 10)
        await quick.send("T", b"behind it in the log")
    clock.now_ms += RESET_MS // 2
    async with members(tmp_path, clock=clock) as (slow, quick):
        await commit(slow, 5)
        assert await committed(quick) == 10
        # Nobody is known here. Whoever reads on is sent to what was committed once, and joins.
        assert (await quick.pull("T", 11)).fields["nextBeginOffset"] == "10"
        assert (await quick.pull("T", 10)).code == 0
        await commit(quick, 11)
        assert await committed(quick) == 11
    clock.now_ms += RESET_MS // 2
    async with members(tmp_path, clock=clock) as (slow, quick):
        await commit(slow, 5)  # for long nobody can be at work with what was before
        assert await committed(quick) == 5


async def test_who_keeps_its_progress_itself_is_moved_only_until_the_group_reads_on(
    tmp_path: Path,
) -> None:
    async with members(tmp_path, 3) as (one, other, reader):
        await reader.ask(35, clientID="c2", consumerGroup="g")
        await reset(other, -1, queueId=0)
        assert (await reader.pull("T", 3)).code == ResponseCode.PULL_OFFSET_MOVED
        assert await committed(one) == 10
        await one.pull("T", 10)
        assert (await reader.pull("T", 3)).code == 0


def test_what_began_lately_is_kept_in_the_state_and_goes_with_its_time() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    as_of = log.end

    def moved(queue_id: int, offset: int) -> None:
        log.append(encode_log_command(ResetOffsets("g", "A", {queue_id: offset}, 1, as_of)))

    for queue_id in range(3):
        moved(queue_id, 5)
        log.append(encode_log_command(EndReset("g", "A", queue_id, 5, 1000 + queue_id)))
    log.append(encode_log_command(EndReset("g", "A", 0, 5, 2000)))  # ended already
    fold(state, log.entries)
    offsets = state[OFFSETS]
    assert [at_ms for _key, at_ms in offsets.began.listed()] == [1000, 1001, 1002]
    assert restored(captured(state), REGISTRY) == state
    moved(1, 7)
    fold(state, log.entries[-1:])
    assert [key for key, _ in offsets.began.listed()] == [("g", "A", 0), ("g", "A", 2)]
    log.append(encode_log_command(EndReset("g", "A", 1, 7, 1000 + RESET_MS)))
    fold(state, log.entries[-1:])
    assert [key for key, _ in offsets.began.listed()] == [("g", "A", 2), ("g", "A", 1)]
    log.append(encode_log_command(DeleteTopic("A", 1, with_locks=True)))
    fold(state, log.entries[-1:])
    assert not offsets.began.listed()


class Moves(RuleBasedStateMachine):
    """Members that are told late, have old messages in work, and commit what they will.

    Each remembers in which generation it was given what; nothing else may be committed.
    """

    clients = st.integers(0, 2)
    offsets = st.integers(0, 12)

    def __init__(self) -> None:
        super().__init__()
        self.state = empty_state()
        self.now_ms = 0
        self.generations = Generations(parts_alone(self.state, wall_clock_ms=lambda: self.now_ms))
        self.generation = 0
        self.origins: list[Any] = [object(), object(), object()]
        self.given: list[dict[int, set[int]]] = [{}, {}, {}]  # by generation: offsets reached
        self.told: list[tuple[int, int] | None] = [None, None, None]

    @rule(offset=offsets)
    def reset(self, offset: int) -> None:
        offsets = self.state[OFFSETS]
        offsets.resets[KEY[:2]] = {0: offset}
        offsets.tables[KEY[:2]] = {0: offset}
        offsets.began.forget(KEY)
        self.generation += 1
        self.generations.moved()

    @rule(client=clients)
    def ask(self, client: int) -> None:
        """14, or a pull that is answered by 21."""
        at = self.state[OFFSETS].committed(*KEY)
        if at is not None:
            self.generations.send(self.origins[client], KEY, at)
            self.told[client] = (self.generation, at)

    @rule(client=clients, offset=offsets, count=st.integers(0, 5))
    def pull(self, client: int, offset: int, count: int) -> None:
        offsets = self.state[OFFSETS]
        if not self.generations.is_open(KEY):
            return
        is_known = self.generation in self.given[client]
        assert self.generations.has_joined(self.origins[client], KEY) == is_known
        joined = self.generations.pulls(self.origins[client], KEY, offset)
        assert joined == (is_known or self.told[client] == (self.generation, offset))
        if not joined:
            return
        reached = self.given[client].setdefault(self.generation, set())
        reached.update(range(offset, offset + count + 1))
        self.generations.gives(self.origins[client], KEY, offset + count)
        if offsets.resets:
            del offsets.resets[KEY[:2]]
            offsets.began.put(KEY, self.now_ms)

    @rule(client=clients, offset=offsets)
    def commit(self, client: int, offset: int) -> None:
        if not self.generations.is_open(KEY):
            return
        reached = self.given[client].get(self.generation, set())
        counts = self.generations.counts(self.origins[client], KEY, offset)
        assert not counts or min(reached) <= offset <= max(reached)
        assert counts or offset not in reached
        if counts:
            self.state[OFFSETS].tables[KEY[:2]][0] = offset

    @rule(client=clients)
    def connect_again(self, client: int) -> None:
        self.generations.drop(self.origins[client])
        self.origins[client] = object()
        self.given[client].clear()
        self.told[client] = None

    @rule()
    def another_leads(self) -> None:
        self.generations.clear()
        for client in range(3):
            self.given[client].clear()
            self.told[client] = None


KEY = ("g", "T", 0)
TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
