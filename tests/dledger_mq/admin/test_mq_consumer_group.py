"""Operators look at consumer groups and move them: by the administrator and by the commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dledger_mq import (
    Client,
    ConsumeFrom,
    ConsumeResult,
    Message,
    MessageQueue,
    MessagingError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestRefused,
    RouteNotFound,
    to_queue,
)
from dledger_mq.admin.answers import (
    decode_connections,
    decode_consume_status,
    decode_direct_result,
    decode_offsets,
    decode_progress,
    decode_time_spans,
)
from dledger_mq.commands.command_line import written_time
from dledger_mq.commands.group_commands import read_time
from dledger_mq.connection.running_info import (
    QueueInfo,
    RunningInfo,
    encode_offsets,
    encode_running_info,
)
from dledger_mq.consuming.consume_tally import ConsumeTally
from dledger_mq.consuming.direct_calls import MAX_CALLS, DirectCalls
from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.listener import SLOW_CALL_S
from dledger_mq.listener_watch import ListenerWatch
from remoting.bodies.message_queue import decode_queue_keyed
from remoting.message.record import MessageRecord, encode_record
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed
from tests.broker.one_broker import START_MS, Clock
from tests.broker.one_broker import until as until_so
from tests.dledger_mq.real_group import RealGroup, real_group
from tests.dledger_mq.scripted_cluster import until

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)


@asynccontextmanager
async def with_messages(directory: Path, clock: Clock | None = None) -> AsyncIterator[RealGroup]:
    """Topic T has two queues; queue 0 has five messages, a second apart, and queue 1 has one."""
    clock = clock or Clock()
    async with real_group(directory, clock=clock) as group:
        await group.admin.create_topic("T", queues=2)
        async with Producer("p", client=group.client) as producer:
            for number in range(5):
                await producer.send(Message("T", b"%d" % number), selector=to_queue(QUEUE))
                clock.now_ms += 1000
            await producer.send(Message("T", b"other"), selector=to_queue(OTHER))
        yield group


class Consumed:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


@asynccontextmanager
async def consuming(group: RealGroup, consumed: Consumed) -> AsyncIterator[PushConsumer]:
    """A member of group g that has consumed everything."""
    async with PushConsumer(
        "g", "T", consumed, client=group.client, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        await consumer.ready()
        with trio.fail_after(20):
            await until(lambda: len(consumed.bodies) >= 6)
        await consumer.commit()
        yield consumer


@pytest.mark.feature("F49")
async def test_a_group_is_moved_while_it_consumes(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        consumed = Consumed()
        async with consuming(group, consumed) as consumer:
            billing = group.admin.group("g")
            consumed.bodies.clear()
            moved = await billing.reset_to_time("T", START_MS + 3000)
            assert moved == {QUEUE: 3, OTHER: 0}
            with trio.fail_after(20):
                await until(lambda: len(consumed.bodies) >= 3)
            assert sorted(consumed.bodies) == [b"3", b"4", b"other"]
            consumed.bodies.clear()
            await billing.reset_to_offset(QUEUE, 4)
            with trio.fail_after(20):
                await until(lambda: bool(consumed.bodies))
            assert consumed.bodies == [b"4"]
            # It has committed the same offsets before it was moved, and has to do so again.
            await consumer.commit()
            assert [row.lag for row in await billing.progress("T")] == [0, 0]


@pytest.mark.feature("F49", "F50")
async def test_a_group_without_members_is_moved_and_goes_on_there(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        consumed = Consumed()
        async with consuming(group, consumed):
            pass
        billing = group.admin.group("g")
        assert [row.lag for row in await billing.progress("T")] == [0, 0]
        assert await billing.reset_to_first("T") == {QUEUE: 0, OTHER: 0}
        assert [row.lag for row in await billing.progress("T")] == [5, 1]
        assert await billing.skip_all("T") == {QUEUE: 5, OTHER: 1}
        assert [row.lag for row in await billing.progress("T")] == [0, 0]
        # Only back: what is further back stays.
        await billing.reset_to_offset(QUEUE, 1)
        assert await billing.reset_to_time("T", START_MS + 3000, only_back=True) == {
            **{QUEUE: 1, OTHER: 0}
        }
        consumed.bodies.clear()
        async with PushConsumer("g", "T", consumed, client=group.client):
            with trio.fail_after(20):
                await until(lambda: len(consumed.bodies) >= 5)
        assert sorted(consumed.bodies) == [b"1", b"2", b"3", b"4", b"other"]


async def test_another_group_goes_on_where_one_is(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        async with consuming(group, Consumed()):
            pass
        await group.admin.group("g").reset_to_offset(QUEUE, 2)
        await group.admin.group("g").clone_to("copy", "T")
        rows = await group.admin.group("copy").progress("T")
        assert [row.consumer_offset for row in rows] == [2, 1]
        assert await group.admin.groups_of("T") == ["copy", "g"]
        with pytest.raises(RequestRefused, match="has no offsets"):
            await group.admin.group("nobody").clone_to("copy")


async def test_what_cannot_be_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        async with consuming(group, Consumed()):
            pass
        billing = group.admin.group("g")
        with pytest.raises(RequestRefused, match="give 0 to 5"):
            await billing.reset_to_offset(QUEUE, 6)
        with pytest.raises(RequestRefused, match="no queue 7"):
            await billing.reset_to_offset(MessageQueue("T", "broker-a", 7), 0)
        with pytest.raises(RouteNotFound):
            await billing.reset_to_first("nothing")
        with pytest.raises(RequestRefused, match="no consumer group"):
            await group.admin.group("nobody").reset_to_first("T")
        with pytest.raises(MessagingError):
            group.admin.group("no way")
        assert await billing.connections() is None
        with pytest.raises(RequestRefused, match="not online"):
            await billing.running_info("c")


async def test_an_operator_sees_the_members_of_a_group_and_what_they_do(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group, consuming(group, Consumed()):
        billing = group.admin.group("g")
        found = await billing.connections()
        assert found is not None
        assert (found.model, found.consume_from) == ("CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        assert found.subscriptions == {"T": "*", "%RETRY%g": "*"}
        (member,) = found.consumers
        assert member.client_id == group.client.client_id
        info = await billing.running_info(member.client_id)
        properties = info["properties"]
        assert isinstance(properties, dict)
        assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert properties["PROP_NAMESERVER_ADDR"] == group.names
        table = info["mqTable"]
        assert isinstance(table, dict)
        assert len(table) == 3
        statuses = info["statusTable"]
        assert isinstance(statuses, dict)
        of_topic = statuses["T"]
        assert isinstance(of_topic, dict)
        assert isinstance(of_topic["consumeOKTPS"], float)
        assert of_topic["consumeOKTPS"] > 0
        assert of_topic["consumeFailedMsgs"] == 0
        status = await billing.consume_status("T")
        assert status == {member.client_id: {QUEUE: 5, OTHER: 1}}
        spans = await billing.time_spans("T")
        assert [span.waiting_ms for span in spans] == [0, 0]
        assert spans[0].first_timestamp == START_MS


async def test_an_operator_has_a_member_consume_a_message(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        calls: list[bytes] = []

        async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
            calls.extend(message.body for message in messages)
            if messages[0].body == b"1":
                raise ValueError("no 1")
            return ConsumeResult.RETRY if messages[0].body == b"2" else None

        billing, member = group.admin.group("g"), group.client.client_id
        async with (
            PushConsumer(
                "reader", "T", client=group.client, consume_from=ConsumeFrom.FIRST
            ) as all_,
            PushConsumer("g", "T", listener, client=group.client) as consumer,
        ):
            await consumer.ready()
            stored = {}
            async for message in all_:
                stored[message.body] = message.offset_message_id
                if len(stored) == 6:
                    break
            for body, result in ((b"0", "CR_SUCCESS"), (b"2", "CR_LATER")):
                assert (await billing.consume_directly(member, stored[body])).result == result
            failed = await billing.consume_directly(member, stored[b"1"])
            assert (failed.result, failed.remark) == ("CR_THROW_EXCEPTION", "ValueError('no 1')")
            assert calls == [b"0", b"2", b"1"]
            # What was consumed for the operator does not count.
            assert [row.consumer_offset for row in await billing.progress("T")] == [0, 0]
            command = ("group", "consume", "g", member)
            assert (await group.rows(*command, stored[b"0"]))[0]["result"] == "CR_SUCCESS"
            ended = await group.command(*command, stored[b"1"])
            assert (ended.exit_code, "no 1" in ended.stdout) == (1, True)
            with pytest.raises(RequestRefused, match="consumes in a loop"):
                await group.admin.group("reader").consume_directly(member, stored[b"0"])
            with pytest.raises(RequestRefused, match="give its offset id"):
                await billing.consume_directly(member, "nothing")


async def test_calls_for_operators_are_bounded() -> None:
    answers: list[Command] = []
    release = trio.Event()

    async def listener(_messages: Sequence[ReceivedMessage]) -> None:
        await release.wait()

    asked = Command(309, {"brokerName": "b"}, encode_record(MessageRecord("T", b"x")))
    async with trio.open_nursery() as nursery:
        calls = ListenerCalls("g", listener, ListenerWatch(), SLOW_CALL_S)
        direct = DirectCalls(calls, is_ordered=False)
        direct.begin(nursery)
        for _ in range(MAX_CALLS + 1):
            direct.asked(asked, answers.append)
        assert [answer.code for answer in answers] == [1]
        assert "run already" in (answers[0].remark or "")
        direct.asked(Command(309, {}, b"no record"), answers.append)
        assert [answer.code for answer in answers] == [1, 1]
        release.set()
    assert len(answers) == MAX_CALLS + 2


async def test_the_commands_show_and_move_groups(tmp_path: Path) -> None:
    async with with_messages(tmp_path) as group:
        consumed = Consumed()
        async with consuming(group, consumed):
            (member,) = await group.rows("group", "consumers", "g")
            assert member["client id"] == group.client.client_id
            assert member["subscriptions"] == "%RETRY%g=* T=*"
            ended = await group.command("group", "running", "g", member["client id"])
            assert "mqTable" in json.loads(ended.stdout)
            rows = await group.rows("group", "status", "g", "T")
            assert [(row["queue"], row["next"]) for row in rows] == [(0, 5), (1, 1)]
        rows = await group.rows("group", "progress", "g", "--topic", "T")
        assert [(row["queue"], row["end"], row["consumed"], row["lag"]) for row in rows] == [
            *((0, 5, 5, 0), (1, 1, 1, 0))
        ]
        moved = await group.rows("group", "reset", "g", "T", "--to-first")
        assert [(row["broker"], row["queue"], row["next"]) for row in moved] == [
            *(("broker-a", 0, 0), ("broker-a", 1, 0))
        ]
        one = ("--to-offset", "3", "--queue", "broker-a:0")
        assert (await group.rows("group", "reset", "g", "T", *one))[0]["next"] == 3
        rows = await group.rows("group", "waiting", "g", "T")
        assert [row["waits ms"] for row in rows] == [2000, 0]
        moved = await group.rows("group", "reset", "g", "T", "--to-time", str(START_MS + 4000))
        assert [row["next"] for row in moved] == [4, 0]
        moved = await group.rows("group", "reset", "g", "T", "--to-last")
        assert [row["next"] for row in moved] == [5, 1]
        piped = await group.command("group", "progress", "g", "--topic", "T")
        assert piped.stdout.splitlines()[0].split("\t")[:5] == ["T", "broker-a", "0", "5", "5"]
        piped = await group.command("topic", "status", "T", "--group", "g")
        assert piped.stdout.splitlines() == ["broker-a\t0\t0\t5\t5\t0", "broker-a\t1\t0\t1\t1\t0"]
        assert (await group.command("group", "clone", "g", "copy")).exit_code == 0
        groups = await group.command("topic", "groups", "T")
        assert groups.stdout.split() == ["copy", "g"]


async def test_the_command_shows_and_changes_settings(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        rows = await group.rows("settings")
        shown = {row["setting"]: row["value"] for row in rows}
        assert shown["fileReservedTime"] == "72"
        assert await group.rows("settings", "fileReservedTime=48") == [
            {"broker": "broker-a", "setting": "fileReservedTime", "value": "48"}
        ]
        assert (await group.rows("settings", "fileReservedTime="))[0]["value"] == "72"
        for wrong, word in (("storePathRootDir=/x", "cannot be changed"), ("nothing=1", "no set")):
            ended = await group.command("settings", wrong)
            assert ended.exit_code == 1
            assert word in ended.stderr
            assert len(ended.stderr.splitlines()) == 1
        assert (await group.admin.settings())["broker-a"]["listenPort"] == shown["listenPort"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("group", "reset", "g", "T"), "give one of"),
        (("group", "reset", "g", "T", "--to-first", "--to-last"), "give one of"),
        (("group", "reset", "g", "T", "--to-offset", "3"), "go together"),
        (("group", "reset", "g", "T", "--to-last", "--queue", "b:0"), "go together"),
        (("group", "reset", "g", "T", "--to-offset", "3", "--queue", "b"), "broker-a:0"),
        (("group", "reset", "g", "T", "--to-last", "--only-back"), "goes with --to-time"),
        (("group", "reset", "g", "T", "--to-time", "soon"), "is no time"),
        (("settings", "name"), "NAME=VALUE"),
        (("group", "mode", "g", "T", "--pop", "--pull"), "one of --pop"),
        (("group", "mode", "g", "--pop"), "GROUP and TOPIC"),
        (("group", "mode", "g", "T", "--shares", "2"), "--shares goes with"),
    ],
)
async def test_a_wrong_command_says_what_to_give(
    tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    async with real_group(tmp_path) as group:
        ended = await group.command(*arguments)
        assert ended.exit_code == 2
        assert word in ended.stderr


async def test_an_operator_sets_how_a_group_reads_a_topic_and_sees_it(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        assert await group.rows("group", "mode") == []
        popping = {"group": "g", "topic": "T", "mode": "POP", "shares": 2}
        assert await group.rows("group", "mode", "g", "T", "--pop", "--shares", "2") == [popping]
        pulling = {"group": "h", "topic": "T", "mode": "PULL", "shares": 0}
        assert await group.rows("group", "mode", "h", "T", "--pull") == [pulling]
        assert await group.rows("group", "mode") == [popping, pulling]
        assert await group.rows("group", "mode", "g") == [popping]
        assert await group.rows("group", "mode", "g", "U") == []
        ended = await group.command("group", "mode", "g", "%RETRY%g", "--pop")
        assert ended.exit_code == 1
        assert "retry topic" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


async def test_of_a_group_that_consumed_nothing_the_commands_say_so(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group:
        for arguments, word in (
            (("group", "progress", "g"), "has consumed nothing"),
            (("group", "consumers", "g"), "has no member"),
            (("group", "status", "g", "T"), "No Any Consumer online"),
            (("group", "clone", "g", "copy"), "has no offsets"),
        ):
            ended = await group.command(*arguments)
            assert ended.exit_code == 1
            assert word in ended.stderr
            assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", START_MS - 90_000),
        ("2h", START_MS - 7_200_000),
        ("1d", START_MS - 86_400_000),
        ("999999999d", 0),
        (str(START_MS), START_MS),
        ("2023-11-14T22:13:20+00:00", START_MS),
        ("2023-11-14 22:13:20.500+00:00", START_MS + 500),
    ],
)
def test_times_are_read_as_people_type_them(text: str, expected: int) -> None:
    assert read_time(text, START_MS) == expected


@given(st.text(max_size=30))
def test_no_text_is_too_odd_for_a_time(text: str) -> None:
    try:
        read_time(text, START_MS)
    except ValueError as error:
        assert "is no time: give" in str(error)  # noqa: PT017


def test_a_written_time_is_read_back() -> None:
    assert read_time(written_time(START_MS), 0) == START_MS
    assert written_time(0) == "-"


@pytest.mark.parametrize("time_ms", [1 << 48, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_is_written_as_none(time_ms: int) -> None:
    assert written_time(time_ms) == "-"


def test_what_a_consumer_says_is_read_as_rocketmq_writes_it() -> None:
    info = RunningInfo(
        ("a:1",),
        True,
        20,
        5,
        (),
        {QUEUE: QueueInfo(3, 9, 6, 3 << 20, True), OTHER: QueueInfo(1, 1, 0, 0)},
    )
    body = encode_running_info(info)
    table = decode_queue_keyed("info", "mqTable", body)
    assert table[QUEUE] == {
        **{"cachedMsgCount": 6, "cachedMsgMinOffset": 3, "cachedMsgMaxOffset": 8},
        **{"cachedMsgSizeInMiB": 3, "commitOffset": 3, "droped": False, "locked": True},
    }
    assert decode_queue_keyed("status", "messageQueueTable", encode_offsets(info, "T")) == {
        **{QUEUE: 3, OTHER: 1}
    }
    assert decode_queue_keyed("status", "messageQueueTable", encode_offsets(info, "U")) == {}


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(1, 5), st.booleans()), max_size=40))
def test_calls_are_counted_over_the_last_minute_and_hour(
    calls: list[tuple[float, int, bool]],
) -> None:
    now, events = 1000.0, list[tuple[float, int, bool]]()
    tally = ConsumeTally(lambda: now)
    for wait, messages, is_consumed in calls:
        now += wait
        tally.called("T", messages, 0.5, is_consumed=is_consumed)
        events.append((now, messages, is_consumed))
    if not events:
        assert tally.statuses() == {}
        return
    status = tally.statuses()["T"]

    def counted(step: int, is_consumed: bool) -> int:
        begin = (now // step - 6) * step
        return sum(count for at, count, good in events if at >= begin and good is is_consumed)

    window_s = 60 + now % 10
    assert status.consumed_per_second == pytest.approx(counted(10, True) / window_s)
    assert status.failed_per_second == pytest.approx(counted(10, False) / window_s)
    assert status.failed_in_hour == counted(600, False)
    assert status.call_ms == pytest.approx(500)


@pytest.mark.parametrize(
    "decode",
    [
        decode_direct_result,
        decode_progress,
        decode_connections,
        decode_consume_status,
        decode_offsets,
        decode_time_spans,
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b'{"spentTimeMills":[],"offsetTable":7,"connectionSet":7,"consumerTable":7,"consumeTimeSpanSet":7}',
        b'{"consumeResult":{},"offsetTable":{"x":{}},"connectionSet":[{}],"consumerTable":{"c":{"x":1}},'
        b'"consumeTimeSpanSet":[{}]}',
    ],
)
def test_answers_of_another_shape_are_refused(decode: object, body: bytes) -> None:
    assert callable(decode)
    with pytest.raises(BodyMalformed):
        decode(body)


async def test_members_that_subscribe_to_different_things_are_told(tmp_path: Path) -> None:
    async with real_group(tmp_path) as group, Client([group.names]) as other:
        await group.admin.create_topic("T", queues=1)
        one = PushConsumer("g", {"T": "a"}, ignore, client=group.client)
        async with one, PushConsumer("g", {"T": "b || c"}, ignore, client=other):

            async def is_told() -> bool:
                return await differences(group) == {
                    (group.client.client_id,): {"T": "a"},
                    (other.client_id,): {"T": "b||c"},
                }

            await until_so(is_told)
            shown = await group.command("group", "consumers", "g")
            assert shown.exit_code == 0
            assert len(shown.stdout.splitlines()) == 2
            assert len(shown.stderr.splitlines()) == 2
            assert "members differ, so that messages are missed" in shown.stderr


async def differences(group: RealGroup) -> dict[tuple[str, ...], dict[str, str]]:
    """What the members of g subscribe to, by their ids, if it is not the same."""
    found = await group.admin.group("g").connections()
    return {} if found is None else {one.client_ids: one.subscriptions for one in found.different}


async def ignore(_messages: Sequence[ReceivedMessage]) -> None:
    """Take whatever comes."""
