"""What brokers say of the messages that come and go (28, 208, 315)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.log.folded import Arrivals, Folded
from broker.messages.quarter_counts import MAX_QUARTERS, QUARTER_MS, QuarterCounts
from broker.traffic.counter import Counter
from broker.traffic.figures import mornings, readable_bytes
from broker.traffic.put_times import PutTimes
from broker.traffic.traffic import Counted, Traffic
from remoting.bodies.table import decode_table
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.one_broker import START_MS, Client, Clock, served


async def figures(client: Client) -> dict[str, str]:
    return decode_table((await client.ask(28)).body)


async def stats(client: Client, name: str, key: str) -> dict[str, Any]:
    reply = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    assert reply.code == 0, reply
    found: dict[str, Any] = json.loads(reply.body)
    return found


@pytest.mark.feature("F54")
async def test_messages_are_counted_by_topic_and_group(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x" * 1000)
        await client.pull("T", 0, group="g")
        assert (await stats(client, "TOPIC_PUT_NUMS", "T"))["statsMinute"]["sum"] == 5
        told = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
        assert float(told.body.rpartition(b'"topicPutTps":')[2].strip(b"}")) > 0
        size = (await stats(client, "TOPIC_PUT_SIZE", "T"))["statsDay"]
        assert size["sum"] > 5000
        assert size["avgpt"] == size["sum"] / 5
        assert (await stats(client, "GROUP_GET_NUMS", "T@g"))["statsHour"]["sum"] == 5
        assert (await stats(client, "GROUP_GET_SIZE", "T@g"))["statsHour"]["sum"] == size["sum"]
        assert (await stats(client, "BROKER_PUT_NUMS", "DefaultCluster"))["statsDay"]["sum"] == 5
        assert (await stats(client, "BROKER_GET_NUMS", "DefaultCluster"))["statsDay"]["sum"] == 5
        found = await figures(client)
        assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == ("5", "5")
        assert found["putMessageTimesTotal"] == "5"
        assert (
            sum(int(part.rsplit(":")[1]) for part in found["putMessageDistributeTime"].split()) == 5
        )
        for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps"):
            assert len([float(word) for word in found[name].split()]) == 3
        assert int(found["earliestMessageTimeStamp"]) == START_MS


async def test_what_was_never_counted_is_told_as_such(tmp_path: Path) -> None:
    never = [
        ("TOPIC_PUT_NUMS", "U"),
        ("GROUP_GET_NUMS", "T@other"),
        ("GROUP_GET_LATENCY", "0@T@g"),
        ("__class__", "T"),
        ("GROUP_GET_FALL_SIZE", "T@g"),
        ("GROUP_GET_FALL_TIME", "9999999999@T@g"),
        ("GROUP_GET_FALL_TIME", "0@T@other"),
    ]
    async with served(tmp_path) as client:
        await client.send("T", b"1")
        for name, key in never:
            reply = await client.ask(
                RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key
            )
            assert reply.code == ResponseCode.SYSTEM_ERROR, (name, key)
            assert "not exist" in (reply.remark or "")


@pytest.mark.feature("F55")
async def test_how_far_a_group_is_behind_is_told_in_bytes_and_in_time(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        for number in range(3):
            clock.now_ms = START_MS + number * 1000
            await client.send("T", b"x" * 1000)
        clock.now_ms = START_MS + 10_000
        await client.heartbeat("c", "g", "T")
        commit: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "commitOffset": 1,
        }
        assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)).code == 0
        behind = await stats(client, "GROUP_GET_FALL_SIZE", "0@T@g")
        assert 2000 < behind["statsMinute"]["sum"] < 4000
        late = await stats(client, "GROUP_GET_FALL_TIME", "0@T@g")
        assert late["statsMinute"]["sum"] == 9000
        commit["commitOffset"] = 3
        assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)).code == 0
        for name in ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"):
            assert (await stats(client, name, "0@T@g"))["statsMinute"]["sum"] == 0


STEPS = st.tuples(st.integers(0, 20_000), st.integers(0, 100), st.booleans())


@pytest.mark.feature("F54")
@given(st.lists(STEPS, min_size=1, max_size=60))
def test_a_counter_has_what_was_counted_in_its_window(
    steps: list[tuple[int, int, bool]],
) -> None:
    counter, events, now = Counter(), list[tuple[int, int]](), 1_000_000
    for wait, amount, is_add in steps:
        now += wait
        if is_add:
            counter.add(now, amount)
            events.append((now, amount))
        for total, bucket, buckets in (
            (counter.minute(now), 10, 7),
            (counter.hour(now), 600, 7),
            (counter.day(now), 3600, 25),
        ):
            begin = (now // bucket - buckets + 1) * bucket
            within = [amount for at, amount in events if at >= begin]
            assert (total.sum, total.times) == (sum(within), len(within))
            assert total.over_s == max(1, now - begin)
    assert counter.sum == sum(amount for _, amount in events)


def test_rates_are_those_of_the_last_seconds() -> None:
    now = 0.0
    traffic = Traffic(lambda: now, "c")
    assert traffic.rates(lambda sums: sums.given) == (0.0, 0.0, 0.0)
    traffic.sample()
    for _ in range(700):
        now += 1.0
        traffic.given("g", "T", 0, 10 if now > 690 else 1, 100, 0.0)
        traffic.sample()
    assert traffic.rates(lambda sums: sums.given) == pytest.approx((10.0, 2.5, 1.15))
    assert traffic.given_per_second("g", "T") == pytest.approx(2.5, abs=0.7)


def test_pulls_of_one_second_and_of_others_are_counted_with_their_times() -> None:
    now = 100.0
    traffic = Traffic(lambda: now, "c")
    for second, queue_id, messages in ((100.0, 0, 3), (100.9, 0, 5), (100.9, 1, 7), (120.0, 0, 1)):
        now = second
        traffic.given("g", "T", queue_id, messages, 10 * messages, 0.002)
    counted = {
        Counted.GROUP_GET_NUMS: ("T@g", 16, 4),
        Counted.GROUP_GET_SIZE: ("T@g", 160, 4),
        Counted.GROUP_GET_LATENCY: ("0@T@g", 6000, 3),
        Counted.QUEUE_GET_NUMS: ("T@1@g", 7, 1),
        Counted.QUEUE_GET_SIZE: ("T@0@g", 90, 3),
        Counted.BROKER_GET_NUMS: ("c", 16, 4),
        Counted.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: ("c", 16, 4),
    }
    for name, (key, total, times) in counted.items():
        counter = traffic.counter(name, key)
        assert counter is not None
        assert counter.hour(120)[:2] == (total, times)
    # Those of second 100 have left the minute.
    counter = traffic.counter(Counted.GROUP_GET_NUMS, "T@g")
    assert counter is not None
    assert counter.minute(175)[:2] == (1, 1)


def test_messages_of_one_second_are_counted_with_their_times() -> None:
    now = 100.0
    traffic = Traffic(lambda: now, "c")
    for arrivals in (
        {("T", 0): 3, ("T", 1): 1},
        {("%DLQ%g", 0): 2},
        {("%DLQ%g", 0): 1},
        {("SELF_TEST_TOPIC", 0): 1},
    ):
        folded = Folded()
        for key, count in arrivals.items():
            folded.arrivals[key] = Arrivals(0, [0] * count, [50] * count, [0] * count)
        traffic.stored(folded)
        traffic.put_within(arrivals, 0.004)
    now = 103.0
    counted = {
        (Counted.TOPIC_PUT_NUMS, "T"): (4, 4),
        (Counted.TOPIC_PUT_SIZE, "T"): (200, 4),
        (Counted.TOPIC_PUT_LATENCY, "1@T"): (4000, 1),
        (Counted.QUEUE_PUT_NUMS, "T@0"): (3, 3),
        (Counted.QUEUE_PUT_SIZE, "T@1"): (50, 1),
        (Counted.DLQ_PUT_NUMS, "g"): (3, 2),
        (Counted.BROKER_PUT_NUMS, "c"): (8, 4),
        (Counted.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, "c"): (7, 3),
    }
    for (name, named), total in counted.items():
        counter = traffic.counter(name, named)
        assert counter is not None, named
        assert counter.minute(103)[:2] == total, named
    assert traffic.sums[:2] == (8, 400)


def test_counters_are_let_go_when_they_are_idle() -> None:
    now = 0.0
    traffic = Traffic(lambda: now, "c")
    traffic.given("h", "T", 0, 5, 1, 0.0)
    now = 30 * 3600.0
    list(traffic.let_go())
    assert traffic.counter(Counted.GROUP_GET_NUMS, "T@h") is None
    traffic.given("h", "T", 0, 1, 1, 0.0)
    counter = traffic.counter(Counted.GROUP_GET_NUMS, "T@h")
    assert counter is not None
    assert counter.sum == 1


def test_counters_are_bounded_and_the_longest_idle_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.traffic.traffic.MAX_COUNTERS", 32)
    now = 0.0
    traffic = Traffic(lambda: now, "c")
    for number in range(200):
        now += 1.0
        traffic.sent_back("busy", "T")
        traffic.sent_back(f"g{number}", "T")
    assert len(traffic) <= 32
    assert traffic.forgotten == 200 + 1 - len(traffic)
    busy = traffic.counter(Counted.SNDBCK_PUT_NUMS, "T@busy")
    assert busy is not None
    assert busy.sum == 200
    assert traffic.counter(Counted.SNDBCK_PUT_NUMS, "T@g0") is None
    assert traffic.counter(Counted.SNDBCK_PUT_NUMS, "T@g199") is not None


async def test_a_topic_that_is_made_again_counts_anew(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"1")
        await client.send("U", b"1")
        await client.pull("T", 0, group="g")
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        await client.send("T", b"1")
        for key, count in (("T", 1), ("U", 1)):
            assert (await stats(client, "TOPIC_PUT_NUMS", key))["statsMinute"]["sum"] == count
        reply = await client.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="T@g"
        )
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (await stats(client, "BROKER_PUT_NUMS", "DefaultCluster"))["statsDay"]["sum"] == 3


async def test_the_counters_of_a_group_outlive_a_topic_that_has_its_name(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"1")
        await client.send("g", b"1")
        await client.send("%DLQ%g", b"1")
        await client.pull("T", 0)
        await client.pull("g", 0)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="g")).code == 0
        for name, key in (
            ("GROUP_GET_NUMS", "T@g"),
            ("GROUP_GET_LATENCY", "0@T@g"),
            ("QUEUE_GET_NUMS", "T@0@g"),
            ("DLQ_PUT_NUMS", "g"),
        ):
            await stats(client, name, key)
        for name, key in (("GROUP_GET_NUMS", "g@g"), ("TOPIC_PUT_NUMS", "g")):
            reply = await client.ask(
                RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key
            )
            assert reply.code == ResponseCode.SYSTEM_ERROR, name


# --- days -----------------------------------------------------------------------------------------

ZONES = (
    *("Etc/UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu"),
    *("Pacific/Auckland", "Pacific/Chatham", "Atlantic/Azores", "Australia/Lord_Howe"),
    *("America/Havana", "Asia/Beirut", "Africa/Cairo", "Pacific/Kiritimati"),
)


@example("Pacific/Chatham", 1_617_458_400_000)  # the clocks are set back from 3:45 to 2:45
@given(st.sampled_from(ZONES), st.integers(1_600_000_000_000, 1_900_000_000_000))
def test_days_begin_at_midnight_in_every_time_zone(zone: str, now_ms: int) -> None:
    there = ZoneInfo(zone)

    def local(time_ms: int) -> datetime:
        return datetime.fromtimestamp(time_ms / 1000, there)

    began = mornings(now_ms, lambda time_ms: local(time_ms).hour)
    assert local(began.today_ms).date() == local(now_ms).date()
    assert local(began.today_ms - 1).date() == local(now_ms).date() - timedelta(days=1)
    assert local(began.yesterday_ms).date() == local(began.today_ms - 1).date()
    assert local(began.yesterday_ms - 1).date() == local(now_ms).date() - timedelta(days=2)


def test_a_clock_that_no_zone_has_has_days_too() -> None:
    day = 24 * 3600 * 1000
    assert mornings(10 * day + 5, lambda _time_ms: 12) == (9 * day, 10 * day)


@given(st.lists(st.integers(0, 5 * QUARTER_MS), min_size=1, max_size=300), st.data())
def test_what_came_before_a_quarter_is_known_for_two_days(
    steps: list[int], data: st.DataObject
) -> None:
    counts, times, now = QuarterCounts(), list[int](), START_MS
    for step in steps:
        now += step
        if now >= counts.next_ms:
            counts.add(now, len(times))
        times.append(now)
    assert len(counts.begins_ms) == len(counts.counts) <= MAX_QUARTERS
    two_days = 48 * 3600 * 1000
    asked = data.draw(st.integers(max(START_MS, now - two_days), now + QUARTER_MS))
    asked -= asked % QUARTER_MS
    earlier = sum(time < asked for time in times)
    if asked >= counts.begins_ms[0] or len(counts.begins_ms) < MAX_QUARTERS:
        assert counts.before(asked, len(times)) == earlier


async def test_todays_messages_are_those_since_midnight_also_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = Clock()
    day = 24 * 3600 * 1000
    clock.now_ms = midnight = START_MS - START_MS % day

    def hour_of(time_ms: int) -> int:
        return time_ms // 3_600_000 % 24

    async with served(tmp_path, clock=clock, hour_of=hour_of) as client:
        for at, count in ((-2 * day, 1), (-day - 1, 2), (-day, 3), (-1, 4), (0, 5), (day // 2, 6)):
            clock.now_ms = midnight + at
            for _ in range(count):
                assert (await client.send("T", b"x")).code == 0
    async with served(tmp_path, clock=clock, hour_of=hour_of) as client:
        found = await figures(client)
        put = [found[f"msgPutTotal{when}"] for when in WHEN]
        assert put == ["3", "10", "21"]
        await client.pull("T", 0)
        await client.pull("T", 10)
        found = await figures(client)
        assert [found[f"msgGetTotal{when}"] for when in WHEN] == ["0", "0", "32"]


WHEN = ("YesterdayMorning", "TodayMorning", "TodayNow")

# Every figure of RocketMQ 4.9.8 and 5.3.3, from AdminBrokerProcessor and those that it asks.
OF_ROCKETMQ = (
    *("EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity"),
    *("ackThreadPoolQueueCapacity", "ackThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueSize", "bootTimestamp", "brokerActive", "brokerVersion"),
    *("brokerVersionDesc", "commitLogDirCapacity", "commitLogDiskRatio", "commitLogMaxOffset"),
    *("commitLogMinOffset", "consumeQueueDiskRatio", "dispatchBehindBytes", "dispatchMaxBuffer"),
    *("earliestMessageTimeStamp", "getFoundTps", "getMessageEntireTimeMax", "getMissTps"),
    *("getTotalTps", "getTransferedTps", "getTransferredTps", "litePullThreadPoolQueueCapacity"),
    *("litePullThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueSize"),
    *("msgGetTotalTodayMorning", "msgGetTotalTodayNow", "msgGetTotalYesterdayMorning"),
    *("msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgPutTotalYesterdayMorning"),
    *("pageCacheLockTimeMills", "pullThreadPoolQueueCapacity"),
    *("pullThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "putLatency99"),
    *("putLatency999", "putMessageAverageSize", "putMessageDistributeTime"),
    *("putMessageEntireTimeMax", "putMessageFailedTimes", "putMessageSizeTotal"),
    *("putMessageTimesTotal", "putTps", "queryThreadPoolQueueCapacity"),
    *("queryThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize"),
    *("remainHowManyDataToCommit", "remainHowManyDataToFlush", "remainTransientStoreBufferNumbs"),
    *("runtime", "sendThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills"),
    *("sendThreadPoolQueueSize", "startAcceptSendRequestTimeStamp", "timerCongestNum"),
    *("timerDequeueTps", "timerEnqueueTps", "timerOffsetBehind", "timerReadBehind"),
)


@pytest.mark.feature("F54")
async def test_all_figures_of_rocketmq_are_told(tmp_path: Path) -> None:
    clock = Clock()
    async with served(tmp_path, clock=clock) as client:
        await client.send("T", b"x" * 100)
        await client.send("T", b"x" * 300)
        await client.send("T", b"later", i="UNIQ_KEY\x01A\x02DELAY\x013\x02")
        await client.pull("T", 0, group="g")
        found = await figures(client)
        assert set(OF_ROCKETMQ) <= found.keys()
        assert f"commitLogDiskRatio_{tmp_path}" in found
        assert found["scheduleMessageOffset_3"] == "0,1"
        assert (found["timerCongestNum"], found["timerReadBehind"]) == ("1", "0")
        assert float(found["putLatency99"]) > 0
        assert int(found["putMessageSizeTotal"]) / 3 == pytest.approx(
            float(found["putMessageAverageSize"]), abs=0.01
        )
        assert found["putMessageFailedTimes"] == "0"
        assert int(found["startAcceptSendRequestTimeStamp"]) == START_MS
        # As the exporter of RocketMQ takes it apart.
        words = found["commitLogDirCapacity"].split(" ")
        assert (words[0], words[3][-1], words[4]) == ("Total", ",", "Free")
        assert float(words[2]) >= float(words[6]) >= 0 or words[3] != words[7].replace(".", ",")
        clock.now_ms += 25_000
        assert (await figures(client))["timerReadBehind"] in ("0", "15")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 40, "1.0 TiB"),
        (1536 << 20, "1.5 GiB"),
    ],
)
def test_bytes_are_written_as_java_writes_them(count: int, words: str) -> None:
    assert readable_bytes(count) == words


def test_percentiles_are_those_of_the_last_minute() -> None:
    times = PutTimes()
    assert times.percentile_ms(0.99) == 0.0
    times.look(100.0)
    for put_ms in range(1, 101):
        times.add(put_ms / 1000, 10)
    assert times.percentile_ms(0.5) == pytest.approx(50, rel=0.06)
    assert times.percentile_ms(0.99) == pytest.approx(99, rel=0.06)
    times.look(161.0)
    times.add(100.0, 1)  # longer than any class
    assert times.percentile_ms(0.99) == pytest.approx(99, rel=0.06)
    times.look(222.0)
    times.look(283.0)
    assert times.percentile_ms(0.99) == 0.0


async def test_queues_groups_and_times_are_counted_too(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(4):
            await client.send("T", b"x" * 1000, 1)
        await client.pull("T", 0, 1)
        size = (await stats(client, "QUEUE_PUT_SIZE", "T@1"))["statsMinute"]["sum"]
        expected = {
            ("QUEUE_PUT_NUMS", "T@1"): 4,
            ("QUEUE_GET_NUMS", "T@1@g"): 4,
            ("QUEUE_GET_SIZE", "T@1@g"): size,
            ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster"): 4,
            ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster"): 4,
        }
        for (name, key), count in expected.items():
            assert (await stats(client, name, key))["statsDay"]["sum"] == count
        put = (await stats(client, "TOPIC_PUT_LATENCY", "1@T"))["statsMinute"]
        got = (await stats(client, "GROUP_GET_LATENCY", "1@T@g"))["statsMinute"]
        assert isinstance(put["sum"], int)
        assert 0 < put["avgpt"] < 10_000
        assert 0 <= got["avgpt"] < 10_000
        # What waits for its time is counted when it comes, and where it waits.
        await client.send("T", b"x", 1, i="UNIQ_KEY\x01A\x02DELAY\x0118\x02")
        for name, count in (("BROKER_PUT_NUMS", 5), ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", 4)):
            assert (await stats(client, name, "DefaultCluster"))["statsDay"]["sum"] == count


async def test_messages_given_up_are_counted_by_group(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"x")
        (record,) = await client.messages("T")
        back: dict[str, Any] = {"group": "g", "offset": record.physical_offset, "delayLevel": -1}
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
        assert (await stats(client, "SNDBCK_PUT_NUMS", "T@g"))["statsMinute"]["sum"] == 1
        assert (await stats(client, "DLQ_PUT_NUMS", "g"))["statsMinute"]["sum"] == 1


def test_times_are_counted_in_the_classes_of_rocketmq() -> None:
    times = PutTimes()
    for put_ms, messages in ((0, 1), (1, 2), (10, 4), (11, 8), (999, 16), (99_999, 32)):
        times.add(put_ms / 1000 + 0.0001, messages)
    counted = dict(part.rsplit(":", 1) for part in str(times).split())
    assert {name: int(count) for name, count in counted.items() if count != "0"} == {
        **{"[<=0ms]": 1, "[0~10ms]": 6, "[10~50ms]": 8, "[500ms~1s]": 16, "[10s~]": 32}
    }
    assert times.slowest_ms == 99_999
