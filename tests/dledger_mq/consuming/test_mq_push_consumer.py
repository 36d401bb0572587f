import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dledger_mq import (
    Client,
    ConsumeFrom,
    ConsumeResult,
    GroupInUse,
    InvalidMessage,
    InvalidOptions,
    Listener,
    MessageModel,
    OffsetFileLocked,
    OffsetFileUnreadable,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    Sql,
)
from dledger_mq.consuming.offsets import locked_offsets
from dledger_mq.consuming.queue_reader import LONGEST_DAMAGE_PAUSE_S
from remoting.message.properties import encode_properties
from remoting.message.record import COMPRESSED_FLAG, COMPRESSION_LZ4
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, Store, start, until

GROUP = "readers"


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0.01)


class Inbox:
    """A listener that remembers."""

    def __init__(self, failures: int = 0) -> None:
        self.messages: list[ReceivedMessage] = []
        self.failures = failures
        self._came = trio.Event()

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        if self.failures:
            self.failures -= 1
            return ConsumeResult.RETRY
        self.messages += messages
        self._came.set()
        return ConsumeResult.SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)

    async def wait(self, count: int) -> None:
        with trio.fail_after(5):
            while len(self.messages) < count:
                self._came = trio.Event()
                await self._came.wait()


def share(consumer: PushConsumer) -> list[int]:
    """The queues of T that a consumer reads."""
    return [queue.queue_id for queue in consumer.queues() if queue.topic == "T"]


class Cluster:
    def __init__(self) -> None:
        self.names = ScriptedNames()
        self.store = Store()
        self.first = ScriptedBroker(self.store)
        self.second = ScriptedBroker(self.store)

    def consumer(
        self,
        inbox: Listener,
        topics: str | dict[str, str] = "T",
        consume_from: ConsumeFrom = ConsumeFrom.FIRST,
        options: PushOptions | None = None,
    ) -> PushConsumer:
        return PushConsumer(
            GROUP,
            topics,
            inbox,
            nameservers=[self.names.address],
            consume_from=consume_from,
            options=options,
        )

    def lead(self, broker: ScriptedBroker) -> None:
        self.names.set_route("T", broker.address)
        self.names.set_route(f"%RETRY%{GROUP}", broker.address, queues=1)


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        for peer in (cluster.names, cluster.first, cluster.second):
            await start(nursery, peer)
        cluster.lead(cluster.first)
        yield cluster
        nursery.cancel_scope.cancel()


async def test_every_message_is_consumed_and_progress_committed_at_the_end() -> None:
    inbox = Inbox()
    async with running() as cluster:
        for number in range(100):
            cluster.store.put("T", number % 2, str(number).encode())
        async with cluster.consumer(inbox):
            await inbox.wait(100)
            cluster.first.put("T", 0, b"late")
            await inbox.wait(101)
        assert cluster.store.offsets[(GROUP, "T", 0)] == 51
        assert cluster.store.offsets[(GROUP, "T", 1)] == 50
    assert len({message.body for message in inbox.messages}) == 101
    (left,) = cluster.first.asked(RequestCode.UNREGISTER_CLIENT)
    assert left.fields["consumerGroup"] == GROUP


async def test_a_group_goes_on_where_it_committed() -> None:
    inbox = Inbox()
    async with running() as cluster:
        for number in range(10):
            cluster.store.put("T", 0, str(number).encode())
        cluster.store.offsets[(GROUP, "T", 0)] = 7
        async with cluster.consumer(inbox):
            await inbox.wait(3)
    assert inbox.bodies == [b"7", b"8", b"9"]


async def test_a_new_group_that_begins_with_the_last_message_gets_only_new_ones() -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.store.put("T", 0, b"old")
        async with cluster.consumer(inbox, consume_from=ConsumeFrom.LAST) as consumer:
            await consumer.ready()
            cluster.first.put("T", 0, b"new")
            await inbox.wait(1)
    assert inbox.bodies == [b"new"]


@pytest.mark.feature("F38")
async def test_a_message_that_failed_comes_again_under_its_own_topic(clock: MockClock) -> None:
    inbox = Inbox(failures=1)
    async with running() as cluster:
        cluster.store.put("T", 0, b"x", encode_properties({"UNIQ_KEY": "id", "TAGS": "A"}))
        async with cluster.consumer(inbox):
            await inbox.wait(1)
        (back,) = cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert back.fields["originMsgId"] == "id"
        assert cluster.store.offsets[(GROUP, "T", 0)] == 1
        assert cluster.store.offsets[(GROUP, f"%RETRY%{GROUP}", 0)] == 1
    (message,) = inbox.messages
    assert (message.topic, message.body, message.reconsume_times) == ("T", b"x", 1)


async def test_a_listener_that_raises_has_its_message_come_again(
    caplog: pytest.LogCaptureFixture, clock: MockClock
) -> None:
    inbox = Inbox()
    calls = 0

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("listener broke")
        await inbox(messages)

    async with running() as cluster:
        cluster.store.put("T", 0, b"x")
        async with PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[cluster.names.address],
            consume_from=ConsumeFrom.FIRST,
        ):
            await inbox.wait(1)
    assert "listener broke" in caplog.text


async def test_a_message_that_failed_alone_comes_again_after_growing_delays(
    clock: MockClock,
) -> None:
    times: list[float] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        if messages[0].body != b"bad":
            return ConsumeResult.SUCCESS
        times.append(trio.current_time())
        return ConsumeResult.SUCCESS if len(times) == 4 else ConsumeResult.RETRY

    async with running() as cluster:
        cluster.store.put("T", 0, b"bad")
        async with cluster.consumer(listener):
            with trio.fail_after(60):
                while len(times) < 4:
                    cluster.first.put("T", 0, b"good")
                    await trio.sleep(0.1)
        assert len(cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 3
        assert cluster.store.offsets[(GROUP, f"%RETRY%{GROUP}", 0)] == 3
    delays = [later - earlier for earlier, later in pairwise(times)]
    assert [round(delay) for delay in delays] == [1, 2, 4]


async def test_an_outage_of_the_listener_sends_almost_nothing_back(clock: MockClock) -> None:
    calls: list[float] = []
    inbox = Inbox()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(trio.current_time())
        await trio.sleep(0.01)
        if trio.current_time() < began + 20:
            raise OSError("the database is away")
        await inbox(messages)

    async with running() as cluster:
        for number in range(200):
            cluster.store.put("T", number % 2, str(number).encode())
        began = trio.current_time()
        async with cluster.consumer(listener):
            await trio.sleep(45)
            assert len(set(inbox.bodies)) == 200
        backs = cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert len(backs) <= 20, "of 200 messages that all failed for 20 s"
    assert len([call for call in calls if call < began + 20]) <= 50
    repeats = [message.reconsume_times for message in inbox.messages]
    assert max(repeats) <= 4, "far from the dead letters"


async def test_an_answer_of_a_listener_that_means_nothing_is_no_success(
    caplog: pytest.LogCaptureFixture, clock: MockClock
) -> None:
    answers: list[object] = ["RETRY", False]

    async def listener(messages: Sequence[ReceivedMessage]) -> object:
        return answers.pop(0) if answers else None

    async with running() as cluster:
        cluster.store.put("T", 0, b"x")
        async with cluster.consumer(listener):  # type: ignore[arg-type]
            await trio.sleep(10)
        assert len(cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 2
    assert "it returned 'RETRY'" in caplog.text
    assert "it returned False" in caplog.text


async def test_a_broadcasting_consumer_tries_a_message_again_before_it_drops_it(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[bytes] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        calls.append(messages[0].body)
        return ConsumeResult.RETRY if messages[0].body == b"bad" else ConsumeResult.SUCCESS

    async with running() as cluster:
        cluster.store.put("T", 0, b"bad")
        cluster.store.put("T", 0, b"good")
        async with PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[cluster.names.address],
            model=MessageModel.BROADCASTING,
            consume_from=ConsumeFrom.FIRST,
        ):
            await trio.sleep(10)
        assert cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    assert sorted(calls) == [b"bad"] * 3 + [b"good"]
    assert "is dropped (broadcast)" in caplog.text


@pytest.mark.feature("F33")
async def test_two_members_share_the_queues_and_the_last_one_takes_all() -> None:
    first, second = Inbox(), Inbox()
    async with running() as cluster, cluster.consumer(first) as one:
        await one.ready()
        assert len(share(one)) == 2
        async with cluster.consumer(second) as two:
            await until(lambda: len(share(one)) == len(share(two)) == 1)
            assert share(one) != share(two)
            await two.ready()
            cluster.first.put("T", 0, b"a")
            cluster.first.put("T", 1, b"b")
            await first.wait(1)
            await second.wait(1)
        cluster.first.notify(GROUP)
        await until(lambda: len(share(one)) == 2)
    assert len(first.messages) == len(second.messages) == 1


async def test_members_that_join_and_leave_repeat_nothing(clock: MockClock) -> None:
    consumed: Counter[bytes] = Counter()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await trio.sleep(0.3)
        consumed.update(message.body for message in messages)

    async with running() as cluster, trio.open_nursery() as nursery:
        sent = 0

        async def feed() -> None:
            nonlocal sent
            while True:
                cluster.first.put("T", sent % 2, str(sent).encode())
                sent += 1
                await trio.sleep(0.05)

        async def join_for_a_while() -> None:
            with trio.move_on_after(4):
                async with cluster.consumer(listener) as two:
                    await two.ready()
                    assert len(share(two)) == 1
                    await trio.sleep_forever()
            cluster.first.notify(GROUP)

        async with cluster.consumer(listener) as one:
            await one.ready()
            nursery.start_soon(feed)
            await trio.sleep(3)
            await join_for_a_while()
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
    repeated = {body for body, times in consumed.items() if times > 1}
    # What the cancelled member's listeners had in work is consumed by the other.
    assert repeated == set()
    assert len(consumed) >= sent - 20


async def test_a_listener_that_is_slow_to_end_does_not_hold_up_another_member(
    clock: MockClock,
) -> None:
    async def stuck(messages: Sequence[ReceivedMessage]) -> None:
        await trio.sleep_forever()

    inbox = Inbox()
    options = PushOptions(close_timeout_s=0)
    async with running() as cluster, cluster.consumer(stuck, options=options) as one:
        for number in range(10):
            cluster.first.put("T", number % 2, str(number).encode())
        await one.ready()
        await trio.sleep(1)
        async with cluster.consumer(inbox):
            await trio.sleep(2)
    assert len(inbox.messages) == 5


async def test_a_consumer_whose_block_is_cancelled_still_commits_and_leaves() -> None:
    inbox = Inbox()
    async with running() as cluster:
        for number in range(10):
            cluster.store.put("T", 0, str(number).encode())
        with trio.CancelScope() as scope:
            async with cluster.consumer(inbox):
                await inbox.wait(10)
                await wait_all_tasks_blocked(0.01)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert cluster.store.offsets[(GROUP, "T", 0)] == 10
        assert len(cluster.first.asked(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_a_cancelled_consumer_does_not_wait_long_for_a_frozen_leader(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.store.put("T", 0, b"x")
        with trio.CancelScope() as scope:
            async with cluster.consumer(inbox):
                await inbox.wait(1)
                freeze(cluster.first)
                cancelled_at = trio.current_time()
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert trio.current_time() - cancelled_at < 2.5


async def test_a_notice_that_comes_twice_changes_nothing() -> None:
    inbox = Inbox()
    async with running() as cluster, cluster.consumer(inbox) as consumer:
        await consumer.ready()
        cluster.first.notify(GROUP)
        cluster.first.notify(GROUP)
        cluster.first.put("T", 0, b"a")
        await inbox.wait(1)
        await wait_all_tasks_blocked(0.05)
        assert share(consumer) == [0, 1]
    assert inbox.bodies == [b"a"]


async def test_consumption_goes_on_at_the_new_leader_when_the_old_one_dies() -> None:
    inbox = Inbox()
    async with running() as cluster, cluster.consumer(inbox) as consumer:
        cluster.first.put("T", 0, b"a")
        await inbox.wait(1)
        cluster.lead(cluster.second)
        cluster.first.cut()
        began = trio.current_time()
        cluster.second.put("T", 0, b"b")
        await inbox.wait(2)
        assert trio.current_time() - began < 1
        assert share(consumer) == [0, 1]
    assert inbox.bodies == [b"a", b"b"]
    assert cluster.store.offsets[(GROUP, "T", 0)] == 2


@pytest.mark.feature("F51")
async def test_a_leader_that_freezes_while_it_holds_pulls_is_left_for_the_new_one(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running() as cluster, cluster.consumer(inbox) as consumer:
        await consumer.ready()
        await trio.sleep(2)
        freeze(cluster.first)
        frozen_at = trio.current_time()
        await trio.sleep(1.5)  # an election
        cluster.names.set_route("T", cluster.second.address)
        cluster.second.put("T", 0, b"after the freeze")
        await inbox.wait(1)
        assert trio.current_time() - frozen_at < 2.5


async def test_a_consumer_that_starts_at_a_frozen_leader_finds_the_new_one(
    clock: MockClock,
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        freeze(cluster.first)
        cluster.store.put("T", 0, b"a")
        async with cluster.consumer(inbox):
            await trio.sleep(1.5)  # an election
            elected_at = trio.current_time()
            cluster.lead(cluster.second)
            await inbox.wait(1)
            assert trio.current_time() - elected_at < 3.5
            assert elected_at < 1.6, "below 5 s in all"


async def test_a_leader_that_holds_pulls_and_answers_is_not_left(clock: MockClock) -> None:
    inbox = Inbox()
    async with running() as cluster, cluster.consumer(inbox) as consumer:
        await consumer.ready()
        asked_before = len(cluster.names.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        await trio.sleep(8)
        assert len(cluster.names.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == asked_before
        questions = cluster.first.asked(RequestCode.GET_MAX_OFFSET)
        assert 5 <= len(questions) <= 10, "once a second for all queues together"
        cluster.first.put("T", 1, b"still read")
        await inbox.wait(1)


def freeze(broker: ScriptedBroker) -> None:
    """Let a broker answer nothing any more, and close no connection."""
    for code in broker.answers:
        broker.answers[code] = lambda _connection, _command: None
    broker.held.clear()


async def test_a_refused_pull_is_repeated_at_the_new_leader() -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.store.put("T", 0, b"a")

        def not_leader(_connection: Connection, command: Command) -> Command:
            cluster.lead(cluster.second)
            return command.reply(14, remark="not leader")

        cluster.first.answers[RequestCode.PULL_MESSAGE] = not_leader
        async with cluster.consumer(inbox):
            await inbox.wait(1)


async def test_without_any_leader_the_queues_are_kept_and_nobody_spins() -> None:
    inbox = Inbox()
    async with running() as cluster, cluster.consumer(inbox) as consumer:
        await consumer.ready()
        before = share(consumer)
        cluster.names.routes.clear()
        cluster.first.cut()
        asked = len(cluster.names.requests)
        await trio.sleep(0.7)
        assert share(consumer) == before == [0, 1]
        assert len(cluster.names.requests) - asked < 60
        cluster.lead(cluster.second)
        cluster.second.put("T", 0, b"a")
        await inbox.wait(1)


async def test_an_offset_that_is_gone_moves_to_where_the_broker_says() -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.store.offsets[(GROUP, "T", 0)] = 500
        async with cluster.consumer(inbox):
            await until(lambda: len(cluster.first.held) >= 2)
            cluster.first.put("T", 0, b"a")
            await inbox.wait(1)
        assert cluster.store.offsets[(GROUP, "T", 0)] == 1


async def test_a_damaged_body_is_read_again_and_neither_handed_out_nor_passed_over(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        for body in (b"first", b"second", b"third"):
            cluster.store.put("T", 0, body)
        whole, damages, damaged = cluster.first.answers[RequestCode.PULL_MESSAGE], True, 0

        def answer(connection: Connection, command: Command) -> Command | None:
            nonlocal damaged
            reply = whole(connection, command)
            if reply is not None and damages and b"second" in reply.body:
                damaged += 1
                reply.body = reply.body.replace(b"second", b"sEcond")
            return reply

        def warnings() -> int:
            return sum(
                one.levelname == "WARNING" and "offset 1 is damaged" in one.getMessage()
                for one in caplog.records
            )

        cluster.first.answers[RequestCode.PULL_MESSAGE] = answer
        async with cluster.consumer(inbox):
            await inbox.wait(1)  # it comes before the damage
            await until(lambda: damaged >= 4)
            assert warnings() == 1
            clock.jump(60)
            await until(lambda: warnings() == 2)
            before = damaged
            for _ in range(10):
                clock.jump(LONGEST_DAMAGE_PAUSE_S)
                await wait_all_tasks_blocked(0.01)
            assert before < damaged <= before + 11
            # Other queues are pulled from as well, and as many messages as ever.
            pulls = [
                one
                for one in cluster.first.asked(RequestCode.PULL_MESSAGE)
                if (one.text("topic"), one.integer("queueId")) == ("T", 0)
            ]
            assert pulls[-1].integer("maxMsgNums") == 1
            assert inbox.bodies == [b"first"]
            damages = False
            clock.jump(LONGEST_DAMAGE_PAUSE_S)
            await inbox.wait(3)
        assert cluster.store.offsets[(GROUP, "T", 0)] == 3
        assert not cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert inbox.bodies == [b"first", b"second", b"third"]


async def test_a_message_whose_library_is_missing_waits_for_it_and_is_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    async with running() as cluster:
        cluster.store.put("T", 0, lz4.frame.compress(b"small"))
        (record,) = cluster.store.queues["T", 0]
        record.system_flag = COMPRESSED_FLAG | COMPRESSION_LZ4
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "lz4.frame", None)
            async with cluster.consumer(inbox):
                await until(lambda: len(cluster.first.asked(RequestCode.PULL_MESSAGE)) >= 4)
        assert not inbox.messages
        assert not cluster.first.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert caplog.text.count("pip install 'dledger[compression]'") >= 1
        async with cluster.consumer(inbox):
            await inbox.wait(1)
    assert inbox.bodies == [b"small"]


async def test_tags_of_one_hash_are_told_apart() -> None:
    inbox = Inbox()
    async with running() as cluster:
        # "Aa" and "BB" have one hash, so that a broker's filter lets both through.
        cluster.store.put("T", 0, b"1", encode_properties({"TAGS": "Aa"}))
        cluster.store.put("T", 0, b"2", encode_properties({"TAGS": "BB"}))
        cluster.store.put("T", 0, b"3", encode_properties({"TAGS": "Aa"}))
        async with cluster.consumer(inbox, {"T": "Aa || C"}):
            await inbox.wait(2)
        assert cluster.store.offsets[(GROUP, "T", 0)] == 3
    assert inbox.bodies == [b"1", b"3"]


async def test_a_full_cache_stops_pulling_and_a_done_message_lets_it_go_on() -> None:
    gate = trio.Event()
    inbox = Inbox()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await gate.wait()
        await inbox(messages)

    async with running() as cluster:
        for number in range(200):
            cluster.store.put("T", 0, str(number).encode())
        async with PushConsumer(
            GROUP,
            "T",
            listener,
            nameservers=[cluster.names.address],
            consume_from=ConsumeFrom.FIRST,
            options=PushOptions(max_cached_messages=64),
        ):

            def pulls() -> int:
                return sum(
                    (command.fields["topic"], command.fields["queueId"]) == ("T", "0")
                    for command in cluster.first.asked(RequestCode.PULL_MESSAGE)
                )

            await until(lambda: pulls() >= 2)
            await wait_all_tasks_blocked(0.05)
            assert pulls() == 2
            gate.set()
            await inbox.wait(200)
    assert len({message.body for message in inbox.messages}) == 200


@pytest.mark.feature("F53")
async def test_a_stuck_listener_fills_no_more_than_the_bound_of_all_queues() -> None:
    gate = trio.Event()
    inbox = Inbox()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await gate.wait()
        await inbox(messages)

    async with running() as cluster:
        for number in range(200):
            cluster.store.put("T", number % 2, b"%0100d" % number)
        options = PushOptions(max_total_cached_bytes=1000, pull_batch=4)
        async with cluster.consumer(listener, options=options):

            def pulled() -> int:
                return 4 * sum(
                    command.fields["topic"] == "T"
                    for command in cluster.first.asked(RequestCode.PULL_MESSAGE)
                )

            await until(lambda: pulled() >= 12)
            await wait_all_tasks_blocked(0.05)
            assert 12 <= pulled() <= 16, "1000 bytes, and an answer for each of two queues"
            gate.set()
            await inbox.wait(200)
    assert len(set(inbox.bodies)) == 200


async def test_a_queue_goes_on_when_another_has_made_room_for_it() -> None:
    gate = trio.Event()
    inbox = Inbox()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].queue.queue_id == 0:
            await trio.sleep_forever()
        await gate.wait()
        await inbox(messages)

    async with running() as cluster:
        for number in range(12):
            cluster.store.put("T", 1, b"%0100d" % number)
        options = PushOptions(max_total_cached_bytes=1000, pull_batch=4, close_timeout_s=0)
        async with cluster.consumer(listener, options=options):

            def pulls(queue_id: int) -> int:
                return sum(
                    (command.fields["topic"], command.fields["queueId"]) == ("T", str(queue_id))
                    for command in cluster.first.asked(RequestCode.PULL_MESSAGE)
                )

            await until(lambda: pulls(1) == 3 and pulls(0) == 1)
            await wait_all_tasks_blocked(0.05)
            for _ in range(4):
                cluster.store.put("T", 0, b"x" * 100)
            cluster.first.put("T", 0, b"x" * 100)
            await wait_all_tasks_blocked(0.05)
            assert pulls(0) == 1, "it holds four messages, and the bound is reached"
            gate.set()
            await until(lambda: pulls(0) > 1)


@pytest.mark.feature("F33")
async def test_a_broadcasting_consumer_gets_all_queues_and_tells_no_broker_its_offsets(
    tmp_path: Path,
) -> None:
    async with running() as cluster:
        for number in range(10):
            cluster.store.put("T", number % 2, str(number).encode())

        async def consume(count: int) -> list[bytes]:
            inbox = Inbox()
            async with PushConsumer(
                GROUP,
                "T",
                inbox,
                nameservers=[cluster.names.address],
                model=MessageModel.BROADCASTING,
                consume_from=ConsumeFrom.FIRST,
                offset_file=str(tmp_path / "new" / "offsets.json"),
            ):
                await inbox.wait(count)
            return inbox.bodies

        assert len(await consume(10)) == 10
        cluster.store.put("T", 0, b"next")
        assert await consume(1) == [b"next"]
        assert cluster.first.asked(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        assert cluster.first.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []


async def test_an_offset_file_that_cannot_be_written_for_a_while_does_not_end_the_consumer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "offsets.json"
    in_the_way = tmp_path / "offsets.json.new"
    async with running() as cluster:
        cluster.store.put("T", 0, b"first")
        inbox = Inbox()
        async with PushConsumer(
            GROUP,
            "T",
            inbox,
            nameservers=[cluster.names.address],
            model=MessageModel.BROADCASTING,
            consume_from=ConsumeFrom.FIRST,
            offset_file=path,
        ) as consumer:
            in_the_way.mkdir()
            await inbox.wait(1)
            await wait_all_tasks_blocked()
            await consumer.commit()
            assert not path.exists()
            assert "offsets are not kept in" in caplog.text
            in_the_way.rmdir()
            await consumer.commit()
            assert '["T", "broker-a", 0, 1]' in path.read_text()


async def test_an_offset_file_that_is_none_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text("[1, 2")
    consumer = PushConsumer(
        GROUP,
        "T",
        Inbox(),
        nameservers=["127.0.0.1:1"],
        model=MessageModel.BROADCASTING,
        offset_file=path,
    )
    with pytest.raises(OffsetFileUnreadable):
        await consumer.__aenter__()
    assert path.read_text() == "[1, 2"


async def test_two_consumers_cannot_keep_their_offsets_in_one_file(tmp_path: Path) -> None:
    def consumer(group: str) -> PushConsumer:
        return PushConsumer(
            group,
            "T",
            Inbox(),
            nameservers=["127.0.0.1:1"],
            model=MessageModel.BROADCASTING,
            offset_file=tmp_path / "made" / "offsets.json",
        )

    async with consumer("one"):
        with pytest.raises(OffsetFileLocked, match="give each consumer a file of its own"):
            await consumer("two").__aenter__()
    async with consumer("two"):
        await trio.lowlevel.checkpoint()
    (tmp_path / "file").write_text("")
    nowhere = locked_offsets(tmp_path / "file" / "offsets.json")
    with pytest.raises(OffsetFileUnreadable), nowhere:
        raise AssertionError("locked what cannot be")


async def test_one_client_refuses_two_consumers_of_one_group() -> None:
    async with running() as cluster, Client([cluster.names.address]) as client:
        async with PushConsumer(GROUP, "T", Inbox(), client=client):
            second = PushConsumer(GROUP, "T", Inbox(), client=client)
            with pytest.raises(GroupInUse):
                await second.__aenter__()
        async with PushConsumer(GROUP, "T", Inbox(), client=client) as third:
            await third.ready()


async def test_the_block_may_end_while_queues_are_given_up() -> None:
    async with running() as cluster, cluster.consumer(Inbox()) as consumer:
        await consumer.ready()
        readers = list(consumer._readers.values())
        consumer._readers = {}  # as at the end of the block, between two steps of this call
        await consumer._give_up(readers)
        assert all(reader.dropped for reader in readers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0: give 1 to 100000"),
        ({"concurrency": 1.5}, "concurrency is 1.5: give"),
        ({"batch_size": 0}, "batch_size is 0: give 1 to 2147483647"),
        ({"batch_size": -1}, "batch_size is -1: give"),
        ({"batch_size": "3"}, "batch_size is '3': give"),
        ({"pull_batch": 1 << 31}, "pull_batch is 2147483648: give 1 to 2147483647"),
        ({"max_cached_messages": 0}, "max_cached_messages is 0: give"),
        ({"max_cached_bytes": 0}, "max_cached_bytes is 0: give"),
        ({"max_reconsume_times": -1}, "max_reconsume_times is -1: give 0 to 2147483647"),
        ({"suspend_ms": None}, "suspend_ms is None: give 10 to 30000"),
        ({"close_timeout_s": -1}, "close_timeout_s is -1: give 0 to inf"),
        ({"close_timeout_s": float("nan")}, "close_timeout_s is nan: give 0 to inf"),
        ({"slow_call_s": "1"}, "slow_call_s is '1': give 0 to inf"),
    ],
)
def test_options_with_which_nothing_is_consumed_or_closed_are_refused(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOptions, match=f"PushOptions: {words}"):
        PushOptions(**options)


@pytest.mark.parametrize("timestamp", [1.7e12, "1700000000000", -1, 1 << 63])
def test_a_time_to_begin_with_that_no_broker_takes_is_refused(timestamp: Any) -> None:
    words = r"PushConsumer: consume_timestamp is .*: give 0 to"
    with pytest.raises(InvalidOptions, match=words):
        PushConsumer(
            GROUP,
            "T",
            Inbox(),
            nameservers=["127.0.0.1:1"],
            consume_from=ConsumeFrom.TIMESTAMP,
            consume_timestamp=timestamp,
        )


@pytest.mark.parametrize("options", [{"model": "BROADCAST"}, {"consume_from": "start"}])
def test_a_consumer_with_an_unknown_way_to_consume_is_not_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        PushConsumer(GROUP, "T", Inbox(), nameservers=["127.0.0.1:1"], **options)


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ({"T": None}, "tags and conditions are texts, not None"),
        ({"T": ["a", "b"]}, "tags and conditions are texts, not list"),
        ({"T": Sql(None)}, "tags and conditions are texts, not None"),  # type: ignore[arg-type]
        (None, "a topic's name is a str, not None"),
        (5, "a topic's name is a str, not int"),
        ([5], "a topic's name is a str, not int"),
    ],
)
async def test_topics_and_tags_of_wrong_types_are_told_in_one_line(topics: Any, words: str) -> None:
    consumer = PushConsumer(GROUP, topics, Inbox(), nameservers=["127.0.0.1:1"])
    with pytest.raises(InvalidMessage, match=words):
        await consumer.__aenter__()
