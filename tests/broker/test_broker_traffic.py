"""What brokers say of the messages that come and go (28, 208, 315)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.traffic.counter import Counter
from broker.traffic.days import Mornings
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


async def test_messages_are_counted_by_topic_and_group(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for _ in range(5):
            await client.send("T", b"x" * 1000)
        await client.pull("T", 0, group="g")
        assert (await stats(client, "TOPIC_PUT_NUMS", "T"))["statsMinute"]["sum"] == 5
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


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "U"),
        ("GROUP_GET_NUMS", "T@other"),
        ("GROUP_GET_LATENCY", "0@T@g"),
        ("__class__", "T"),
        ("GROUP_GET_FALL_SIZE", "T@g"),
        ("GROUP_GET_FALL_TIME", "9999999999@T@g"),
        ("GROUP_GET_FALL_TIME", "0@T@other"),
    ],
)
async def test_what_was_never_counted_is_told_as_such(tmp_path: Path, name: str, key: str) -> None:
    async with served(tmp_path) as client:
        await client.send("T", b"1")
        reply = await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert (reply.code, "not exist" in (reply.remark or "")) == (
            ResponseCode.SYSTEM_ERROR,
            True,
        )


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
            assert total.seconds == max(1, now - begin)
    assert counter.sum == sum(amount for _, amount in events)


def test_rates_are_those_of_the_last_seconds() -> None:
    now = 0.0
    traffic = Traffic(lambda: now, "c")
    assert traffic.rates(lambda sums: sums.given) == (0.0, 0.0, 0.0)
    traffic.sample()
    for _ in range(700):
        now += 1.0
        traffic.given("g", "T", 10 if now > 690 else 1, 100)
        traffic.sample()
    assert traffic.rates(lambda sums: sums.given) == pytest.approx((10.0, 2.5, 1.15))
    assert traffic.given_per_second("g", "T") == pytest.approx(2.5, abs=0.7)


def test_counters_are_bounded_and_let_go_when_they_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.traffic.traffic.MAX_COUNTERS", 3)
    now = 0.0
    traffic = Traffic(lambda: now, "c")
    traffic.given("g", "T", 1, 1)  # by group, its bytes, and for the broker
    traffic.given("h", "T", 1, 1)
    assert traffic.left_out == 2
    assert traffic.sums.given == 2
    now = 30 * 3600.0
    traffic.let_go()
    traffic.given("h", "T", 1, 1)
    counter = traffic.counter(Counted.GROUP_GET_NUMS, "T@h")
    assert counter is not None
    assert counter.sum == 1


def test_days_begin_at_midnight() -> None:
    days = Mornings(5)
    for hour, total in ((22, 6), (23, 7), (23, 8), (0, 9), (0, 10), (13, 20), (23, 30), (1, 40)):
        days.look(hour, total)
    assert (days.yesterday, days.today) == (9, 40)


def test_times_are_counted_in_the_classes_of_rocketmq() -> None:
    times = PutTimes()
    for milliseconds, messages in ((0, 1), (1, 2), (10, 4), (11, 8), (999, 16), (99_999, 32)):
        times.add(milliseconds / 1000 + 0.0001, messages)
    counted = dict(part.rsplit(":", 1) for part in str(times).split())
    assert {name: int(count) for name, count in counted.items() if count != "0"} == {
        **{"[<=0ms]": 1, "[0~10ms]": 6, "[10~50ms]": 8, "[500ms~1s]": 16, "[10s~]": 32}
    }
    assert times.slowest_ms == 99_999
