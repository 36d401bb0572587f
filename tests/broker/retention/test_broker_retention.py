"""Messages that are too old, or too much for the disk: who decides, what goes, what clients see."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import broker.broker_command as command
from broker.config_of_options import checked_config
from broker.errors import SettingInvalid
from broker.features import empty_state
from broker.machine import BrokerMachine
from broker.messages.state import MESSAGES
from broker.retention.keeper import LOG_KEEPER
from broker.retention.policy import Drop, RetentionPolicy, read_hours, utc_hour
from broker.server import Broker
from dledger import Discarded, LogFull, SegmentBegin
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig
from dledger_mq import ConsumeFrom, PushConsumer, ReceivedMessage
from nameserver.server import serve_nameserver
from remoting.message.record import decode_records
from remoting.wire.codes import ResponseCode
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, until
from tests.broker.retention.keeper_alone import keeper_alone
from tests.broker.three_brokers import group_of_three

HOUR_MS = 60 * 60 * 1000
SMALL: dict[str, Any] = {
    "store": StoreConfig(segment_bytes=8192, index_segment_bytes=320, max_body_bytes=4000),
    "snapshots": SnapshotPolicy(every_entries=10, kept=1, trailing_entries=0),
}


class Surroundings:
    """Clock, hour and disk, as the test says."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.hour = 4
        self.used = 10.0

    def settings(self) -> dict[str, Any]:
        return {
            "clock": self.clock,
            "hour_of": lambda _time_ms: self.hour,
            "used_percent": lambda _directory: self.used,
            **SMALL,
        }


# --- the rules ------------------------------------------------------------------------------------


@pytest.mark.feature("F27")
@pytest.mark.parametrize(
    ("used", "hour", "expected"),
    [
        (10.0, 3, Drop.NOTHING),
        (10.0, 4, Drop.EXPIRED),
        (75.0, 5, Drop.NOTHING),
        (75.1, 5, Drop.EXPIRED),
        (85.0, 5, Drop.EXPIRED),
        (85.1, 5, Drop.OLDEST),
        (99.0, 4, Drop.OLDEST),
    ],
)
def test_hour_and_disk_say_what_may_go(used: float, hour: int, expected: Drop) -> None:
    assert RetentionPolicy().due(used, hour) is expected


def test_messages_are_refused_above_90_percent_and_kept_for_72_hours() -> None:
    policy = RetentionPolicy()
    assert not policy.refuses(90.0)
    assert policy.refuses(90.1)
    assert policy.expired_at_ms(START_MS) == START_MS - 72 * HOUR_MS


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_hours": 0},
        {"at_hours": frozenset({24})},
        {"clean_percent": 5},
        {"clean_percent": 96},
        {"clean_percent": 80, "force_percent": 70},
        {"refuse_percent": 80},
        {"refuse_percent": 101},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(SettingInvalid):
        RetentionPolicy(**settings)  # type: ignore[arg-type]


def test_hours_are_read_as_rocketmq_writes_them() -> None:
    assert read_hours("04") == {4}
    assert read_hours("4; 16") == {4, 16}
    assert read_hours("") == frozenset()
    with pytest.raises(SettingInvalid):
        read_hours("four")
    assert utc_hour(START_MS) == 22  # 2023-11-14 22:13:20


def test_the_command_takes_the_settings() -> None:
    base = ["--group", "g", "--node", "n0", "--peers", "n0=127.0.0.1:1", "--dir", "/tmp/x"]
    base += ["--listen", "127.0.0.1:2"]
    config = checked_config(command.broker.make_context("broker", list(base)))
    assert config.retention == RetentionPolicy()
    more = ["--keep-hours", "24", "--delete-at-hours", "1;2", "--disk-clean-percent", "50"]
    more += ["--disk-force-percent", "60", "--disk-refuse-percent", "70"]
    config = checked_config(command.broker.make_context("broker", base + more))
    assert config.retention == RetentionPolicy(
        keep_hours=24,
        at_hours=frozenset({1, 2}),
        clean_percent=50,
        force_percent=60,
        refuse_percent=70,
    )


# --- one broker -----------------------------------------------------------------------------------


async def send(client: Client, count: int, topic: str = "T") -> None:
    """Messages of half a kilobyte."""
    for number in range(count):
        reply = await client.send(topic, b"%d " % number + b"x" * 500)
        assert reply.code == 0, reply


async def looked(broker: Broker) -> None:
    """A look, and what it has appended."""
    await broker.parts[LOG_KEEPER].look()

    async def is_decided() -> bool:
        return not broker.parts[LOG_KEEPER].is_deciding

    await until(is_decided)


async def minimum(client: Client, topic: str = "T") -> int:
    return int((await client.ask(31, topic=topic, queueId=0)).fields["offset"])


async def test_messages_older_than_72_hours_go_at_the_hour_by_whole_segments(
    tmp_path: Path,
) -> None:
    around = Surroundings()
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 60)
        around.clock.now_ms += HOUR_MS
        await send(client, 60)
        around.clock.now_ms = START_MS + 72 * HOUR_MS - 1
        await looked(broker)
        assert await minimum(client) == 0
        around.clock.now_ms = START_MS + 72 * HOUR_MS + HOUR_MS // 2
        around.hour = 5
        await looked(broker)
        assert await minimum(client) == 0
        around.hour = 4
        await looked(broker)
        first = await minimum(client)
        # Only those of the first hour, but for the rest of a segment.
        assert 40 < first <= 60
        assert broker.machine.state[MESSAGES].kept_position % 8192 == 0
        messages = broker.machine.state[MESSAGES]
        assert broker.node.segment_begin(messages.kept_from).pos == messages.kept_position
        await until_dropped(broker)
        await looked(broker)
        assert await minimum(client) == first


async def until_dropped(broker: Broker) -> None:
    """The files go beside the appends, as soon as there is a snapshot."""

    async def is_so() -> bool:
        return broker.node.status().first_index == broker.machine.state[MESSAGES].kept_from

    await until(is_so)


async def without_the_oldest(
    broker: Broker, around: Surroundings, client: Client, count: int = 60
) -> int:
    """Send, and drop segments until some messages are gone; the first offset that is left."""
    await send(client, count)
    around.used = 86.0
    await looked(broker)
    around.used = 10.0
    return await minimum(client)


async def test_above_85_percent_the_oldest_segment_goes_whatever_its_age(tmp_path: Path) -> None:
    around = Surroundings()
    around.hour = 12
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 60)
        around.used = 84.0
        await looked(broker)
        assert await minimum(client) == 0
        around.used = 86.0
        await looked(broker)
        first = await minimum(client)
        assert 5 < first < 20
        assert broker.machine.state[MESSAGES].kept_position == 8192
        await until_dropped(broker)
        await looked(broker)
        assert broker.machine.state[MESSAGES].kept_position == 2 * 8192
        await until_dropped(broker)
        for _ in range(20):
            await looked(broker)
            await until_dropped(broker)
        # The last segment stays.
        end = broker.machine.state.log_end
        assert 0 < end - broker.machine.state[MESSAGES].kept_position <= 2 * 8192
        assert (await client.pull("T", 59)).code == 0


async def test_a_full_disk_costs_one_segment_until_its_files_are_gone(tmp_path: Path) -> None:
    around = Surroundings()
    settings = {**around.settings(), "snapshots": SnapshotPolicy(kept=1, trailing_entries=0)}
    async with running_broker(tmp_path, **settings) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        first = await without_the_oldest(broker, around, client)
        around.used = 86.0
        for _ in range(3):
            await looked(broker)
        assert await minimum(client) == first
        await broker.node.snapshot()  # nothing else writes one in this test
        await until_dropped(broker)
        await looked(broker)
        assert await minimum(client) > first


async def test_what_retention_gave_up_goes_though_nothing_else_is_appended(tmp_path: Path) -> None:
    around = Surroundings()
    settings = {**around.settings(), "snapshots": SnapshotPolicy(trailing_entries=0)}
    async with running_broker(tmp_path, **settings) as (broker, nursery):
        await send(Client(nursery, str(broker.config.address)), 60)
        around.used = 86.0
        for _ in range(20):
            await looked(broker)
            await broker.node.wait_applied(broker.node.status().committed)
            if broker.node.begin_position:
                break
            if broker.machine.state[MESSAGES].kept_position:
                await broker.node.snapshot()  # as the policy of a broker does by itself
        assert 0 < broker.node.begin_position <= broker.machine.state[MESSAGES].kept_position
        assert broker.machine.state.refused_entries == 0


async def test_above_90_percent_no_message_is_taken_until_it_is_less(tmp_path: Path) -> None:
    around = Surroundings()
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 1)
        around.used = 91.0
        await broker.parts[LOG_KEEPER].look()
        refused = await client.send("T", b"x")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "disk" in (refused.remark or "")
        back = await client.ask(36, group="g", offset=0, delayLevel=0)
        assert (back.code, back.remark) == (refused.code, refused.remark)
        assert (await client.pull("T", 0)).code == 0
        assert (await client.heartbeat("c", "g", "T")).code == 0
        around.used = 89.0
        await broker.parts[LOG_KEEPER].look()
        assert (await client.send("T", b"x")).code == 0


async def test_a_disk_that_tells_nothing_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_directory: Path) -> float:
        raise OSError(5, "no")

    async with running_broker(tmp_path, used_percent=fails) as (broker, nursery):
        await broker.parts[LOG_KEEPER].look()
        assert "cannot be told" in caplog.text
        await send(Client(nursery, str(broker.config.address)), 1)


async def test_lookups_below_the_first_message_are_answered_as_rocketmq_does(
    tmp_path: Path,
) -> None:
    around = Surroundings()
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 1)
        message_at_0 = (await client.messages("T"))[0].physical_offset
        first = await without_the_oldest(broker, around, client)
        assert first > 0
        for offset in (0, first - 1):
            reply = await client.pull("T", offset)
            assert (reply.code, reply.remark) == (
                ResponseCode.PULL_OFFSET_MOVED,
                "OFFSET_TOO_SMALL",
            )
            assert reply.fields["nextBeginOffset"] == reply.fields["minOffset"] == str(first)
        beyond = await client.pull("T", 99)
        assert (beyond.code, beyond.remark) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "OFFSET_OVERFLOW_BADLY",
        )
        assert beyond.fields["nextBeginOffset"] == "61"
        (got, *_) = decode_records((await client.pull("T", first)).body)
        assert got.queue_offset == first
        assert (await client.ask(33, offset=message_at_0)).code == ResponseCode.SYSTEM_ERROR
        assert (await client.ask(33, offset=got.physical_offset)).code == 0
        by_time = await client.ask(29, topic="T", queueId=0, timestamp=0)
        assert by_time.fields["offset"] == str(first)
        oldest = await client.ask(32, topic="T", queueId=0)
        assert oldest.fields["timestamp"] == str(got.store_timestamp)
        unknown = await client.ask(14, consumerGroup="new", topic="T", queueId=0)
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND
        assert f'"minOffset":{first}' in (await client.ask(202, topic="T")).body.decode()
        figures = (await client.ask(28)).body.decode()
        assert f'"commitLogMinOffset":"{broker.machine.state[MESSAGES].kept_position}"' in figures


async def test_a_start_behind_retention_has_the_same_beginning(tmp_path: Path) -> None:
    around = Surroundings()
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        first = await without_the_oldest(broker, around, client)
        await until_dropped(broker)
    for gone in (False, True):
        if gone:
            shutil.rmtree(tmp_path / "consumequeue")
        async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
            client = Client(nursery, str(broker.config.address))
            assert await minimum(client) == first
            assert (await client.pull("T", 0)).remark == "OFFSET_TOO_SMALL"
            records = decode_records((await client.pull("T", first)).body)
            assert [one.queue_offset for one in records][:5] == list(range(first, first + 5))
            await send(client, 1)


@pytest.mark.feature("F27")
async def test_every_member_drops_the_same_and_a_new_leader_has_the_same_beginning(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with group_of_three(tmp_path, clock=clock, **SMALL) as group:
        leader, client = await group.leader()
        await send(client, 60)
        clock.now_ms += 73 * HOUR_MS
        await send(client, 20)
        for broker in group.brokers.values():
            await looked(broker)
        first = await minimum(client)
        assert first > 30

        async def all_have_dropped() -> bool:
            await send(client, 1)
            begins = {b.node.status().first_index for b in group.brokers.values()}
            return begins == {group.brokers[leader].machine.state[MESSAGES].kept_from}

        await until(all_have_dropped)
        group.stop(leader)
        other, client = await group.leader()
        assert other != leader
        assert await minimum(client) == first
        assert (await client.pull("T", 0)).fields["nextBeginOffset"] == str(first)


async def test_a_member_with_less_of_the_log_than_retention_keeps_begins_where_its_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As one that was given a snapshot, because it was far behind.
    monkeypatch.setattr(BrokerMachine, "log_kept_from", lambda machine: 50)
    around = Surroundings()
    async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await send(client, 60)

        async def has_dropped() -> bool:
            await send(client, 1)
            return broker.node.status().first_index > 0

        await until(has_dropped)
        await broker.node.snapshot()
        assert broker.machine.state[MESSAGES].kept_position == 0
        first = await minimum(client)
        assert 20 < first < 50
    for gone in (False, True):
        if gone:
            shutil.rmtree(tmp_path / "consumequeue")
        async with running_broker(tmp_path, **around.settings()) as (broker, nursery):
            client = Client(nursery, str(broker.config.address))
            reply = await client.pull("T", 0)
            assert (reply.remark, reply.fields["nextBeginOffset"]) == (
                "OFFSET_TOO_SMALL",
                str(first),
            )
            assert decode_records((await client.pull("T", first)).body)[0].queue_offset == first


# --- a consumer -----------------------------------------------------------------------------------


async def test_a_consumer_whose_offset_is_gone_goes_on_with_the_first_message_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    around = Surroundings()
    got: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        got.extend(message.queue_offset for message in messages)

    async with trio.open_nursery() as nursery:
        nameserver = str(await nursery.start(serve_nameserver, "127.0.0.1", 0))
        settings = around.settings()
        async with running_broker(tmp_path, nameservers=(nameserver,), **settings) as (
            broker,
            inner,
        ):
            client = Client(inner, str(broker.config.address))
            await client.heartbeat("c", "g", "T")
            await send(client, 1)
            await client.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=1)
            first = await without_the_oldest(broker, around, client)
            assert first > 1
            await until_dropped(broker)
            with trio.fail_after(20):
                async with PushConsumer(
                    "g", "T", listener, nameservers=[nameserver], consume_from=ConsumeFrom.FIRST
                ):
                    while len(got) < 61 - first:  # noqa: ASYNC110 - told by a callback
                        await trio.sleep(0.02)
            assert sorted(got) == list(range(first, 61))
            assert "is not there" in caplog.text
        nursery.cancel_scope.cancel()


async def test_a_decision_that_the_log_refused_is_made_again(tmp_path: Path) -> None:
    submitted: list[Callable[[object], None]] = []
    node = SimpleNamespace(
        submit=lambda _bodies, done: submitted.append(done),
        segment_begin=lambda _index: SegmentBegin(500, 5),
        disk_short=None,
    )
    state = empty_state()
    state[MESSAGES].time_marks.add(0, 9, 1)
    queues = SimpleNamespace(keys=list)
    policy = SimpleNamespace(
        refuses=lambda _used: False,
        due=lambda *_: Drop.EXPIRED,
        expired_at_ms=lambda _now_ms: 5,
    )
    machine = SimpleNamespace(state=state, queues=queues)
    keeper = keeper_alone(tmp_path, machine, node, policy=lambda: policy, is_leading=True)
    for refusal in (Discarded(1, 1), LogFull(1, 1)):
        await keeper.look()
        await keeper.look()
        assert len(submitted) == 1, "it is on its way"
        submitted.pop()(refusal)
    await keeper.look()
    assert len(submitted) == 1
