from __future__ import annotations

import base64
import gc
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.delay.deliveries import DELIVERIES
from broker.delay.due import LEVEL_MS, MAX_DELAY_MS
from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting, WaitingTable
from broker.features import REGISTRY, empty_state
from broker.formats.commands import RaiseFormat
from broker.formats.state import FORMATS
from broker.limits import BrokerLimits
from broker.log.command_layout import LogCommand
from broker.log.entry import ATTACHED_VERSION, EntryKind, encode_log_command, kind_of
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state import BrokerState
from broker.log.state_snapshot import captured, restored
from broker.machine import BrokerMachine
from broker.messages.state import MESSAGES
from broker.retention.commands import KeepLogFrom
from broker.topics.changes import TOPIC_CHANGES
from dledger import DiskFailed, Entry
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.delay.delaying_broker import Delayed, delaying
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, until
from tests.broker.retention.test_broker_retention import Surroundings, looked, send

DELAY = "DELAY\x01{}\x02UNIQ_KEY\x01key\x02"
TIMED = "TIMER_DELAY_MS\x01{}\x02UNIQ_KEY\x01key\x02"


# --- the table ------------------------------------------------------------------------------------

positions = st.integers(0, 12)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), positions, st.integers(0, 5)),
        st.tuples(st.just("remove"), positions, st.just(0)),
        st.tuples(st.just("capture"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def test_a_table_in_memory_is_closed_with_the_last_reference_to_its_state() -> None:
    state: Any = empty_state()
    connection = state[DELAYS].waiting._database
    state.itself = state  # the collector alone finds it, and the connection with it
    del state
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_table_that_cannot_be_made_leaves_nothing_open_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[sqlite3.Connection] = []

    def connect(table: WaitingTable) -> sqlite3.Connection:
        made.append(sqlite3.connect(table._path))
        made[0].execute("CREATE TABLE waiting (taken)")
        return made[0]

    monkeypatch.setattr(WaitingTable, "_connect", connect)
    with pytest.raises(DiskFailed, match="already exists"):
        WaitingTable(os.fspath(tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")


@given(script=operations, in_file=st.booleans())
def test_the_table_of_those_that_wait_is_as_a_dictionary_and_a_heap(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, int, int]], in_file: bool
) -> None:
    table = WaitingTable(os.fspath(tmp_path_factory.mktemp("table")) if in_file else None)
    model: dict[int, int] = {}
    captures = []
    for what, position, due_ms in script:
        if what == "add" and position not in model:
            table.add([Waiting(position, due_ms, 9)])
            model[position] = due_ms
        elif what == "remove":
            expected = model.pop(position, None)
            removed = table.remove(position)
            assert (None if removed is None else removed.due_ms) == expected
        elif what == "capture":
            captures.append((table.captured(), dict(model)))
        assert len(table) == len(model)
        assert (position in table) == (position in model)
        heap = sorted((due, at) for at, due in model.items())
        assert table.due(3, 2, 4) == [Waiting(at, d, 9) for d, at in heap if d <= 3 and at >= 2][:4]
        assert table.next_due_ms(2) == min((due for due, _at in heap if due > 2), default=None)
        assert [one.position for one in table.due_at(1, 9)] == [at for d, at in heap if d == 1]
        assert table.first_position() == min(model, default=None)
        assert [one.position for one in table.before(6, 3)] == sorted(a for a in model if a < 6)[:3]
    for rows, then in captures:
        assert {row.position: row.due_ms for row in rows} == then
    table.close()


def test_a_table_leaves_no_file_when_it_is_closed(tmp_path: Path) -> None:
    table = WaitingTable(os.fspath(tmp_path))
    table.add([Waiting(at, at, 1) for at in range(10_000)])
    rows = table.captured()
    next(rows)
    assert list(tmp_path.iterdir())
    table.close()
    assert not list(tmp_path.iterdir())
    assert next(rows).position == 1


# --- the fold -------------------------------------------------------------------------------------


def with_behind(log: Log, offset: int, command: LogCommand | bytes, topic: str = "A") -> Entry:
    """A record with a command behind it."""
    entry = log.append_record(topic, 0, offset)
    log.entries.pop()
    behind = command if isinstance(command, bytes) else encode_log_command(command)
    log._pos = entry.pos
    return log.append(entry.body + behind)


def folded(log: Log, state: BrokerState) -> list[bool]:
    """Which entries of a log are taken."""
    results = fold(state, log.entries).results
    return [not isinstance(result, EntryRefused) for result in results]


def test_a_delayed_message_is_delivered_once_and_a_second_copy_is_no_message() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    waiting = with_behind(log, 0, Delay(77))
    with_behind(log, 1, Deliver(waiting.body_pos))
    with_behind(log, 2, Deliver(waiting.body_pos))
    last = log.append_record("A", 0, 2)
    assert folded(log, state)[1:] == [True, True, False, True]
    assert (len(state[DELAYS].waiting), state[DELAYS].delivered) == (0, 1)
    assert kind_of(last.body) is kind_of(waiting.body) is EntryKind.RECORD


def test_a_message_that_is_dropped_is_not_delivered_and_a_moved_one_is() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    first = with_behind(log, 0, Delay(77))
    second = with_behind(log, 1, Delay(88))
    log.append(encode_log_command(DropDelayed(first.body_pos)))
    log.append(encode_log_command(DropDelayed(first.body_pos)))
    with_behind(log, 2, Deliver(first.body_pos))
    moved = with_behind(log, 2, MoveDelayed(second.body_pos))
    with_behind(log, 3, Deliver(second.body_pos))
    assert folded(log, state)[1:] == [True, True, True, False, False, True, False]
    (left,) = state[DELAYS].waiting.captured()
    assert (left.position, left.due_ms) == (moved.body_pos, 88)
    assert left.size == len(moved.body) - len(encode_log_command(MoveDelayed(second.body_pos)))


@pytest.mark.parametrize(
    "behind",
    [
        b"x",
        b"\0\0\0\x09DLB\x04\x90",
        encode_log_command(Delay(1)) + b"x",
        encode_log_command(DropDelayed(1)),  # stands alone
        encode_log_command(Delay(1 << 63)),
        encode_log_command(Delay(-1)),
        encode_log_command(Deliver(1 << 63)),
        encode_log_command(MoveDelayed(5)),
    ],
)
def test_a_record_with_something_else_behind_it_is_no_message(behind: bytes) -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    with_behind(log, 0, behind)
    log.append_record("A", 0, 0)
    assert folded(log, state)[1:] == [False, True]


def test_a_command_that_stands_behind_records_does_not_stand_alone() -> None:
    log, state = Log(), empty_state()
    for command in (Delay(1), Deliver(1), MoveDelayed(1)):
        log.append(encode_log_command(command))
    assert folded(log, state) == [False] * 3


def test_a_snapshot_has_the_messages_that_wait(tmp_path: Path) -> None:
    log, state = Log(), BrokerState(REGISTRY, folder=os.fspath(tmp_path))
    with_topic(log)
    for offset in range(1200):
        with_behind(log, offset, Delay(offset % 7))
    fold(state, log.entries)
    chunks = captured(state)
    state[DELAYS].waiting.remove(state[DELAYS].waiting.due(9, 0, 1)[0].position)
    again = restored(chunks, REGISTRY, os.fspath(tmp_path))
    assert len(again[DELAYS].waiting) == 1200
    assert again != state
    state.become(again)
    assert len(state[DELAYS].waiting) == 1200
    state.close()
    assert not list(tmp_path.iterdir())


# --- a broker -------------------------------------------------------------------------------------


@pytest.mark.feature("F41")
@pytest.mark.parametrize("level", [1, 3, 18, 19, 99])
async def test_a_message_of_a_level_comes_when_its_time_is_over_and_not_before(
    tmp_path: Path, level: int
) -> None:
    async with delaying(tmp_path) as one:
        assert (await one.send(DELAY.format(level) + "TAGS\x01a\x02", b"late")).code == 0
        await one.send("", b"now")
        due_ms = LEVEL_MS[min(level, 18) - 1]
        one.at(due_ms - 1)
        assert await one.bodies() == [b"now"]
        one.at(due_ms)
        assert await one.bodies() == [b"now", b"late"]
        late = (await one.client.messages("T"))[1]
        properties = late.property_map()
        assert "DELAY" not in properties
        assert (properties["UNIQ_KEY"], properties["TAGS"]) == ("key", "a")
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "0")
        assert (late.queue_offset, late.born_timestamp) == (1, START_MS)
        assert late.store_timestamp == START_MS + due_ms
        assert (await one.client.pull("T", 1, subscription="b")).code != 0
        one.at(10 * due_ms)
        assert await one.bodies() == [b"now", b"late"]


@pytest.mark.feature("F41")
@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ("TIMER_DELAY_SEC\x013\x02", 3000),
        ("TIMER_DELAY_MS\x01250\x02", 250),
        (f"TIMER_DELIVER_MS\x01{START_MS + 7}\x02", 7),
        (f"__STARTDELIVERTIME\x01{START_MS + 8}\x02", 8),
        (f"TIMER_DELAY_MS\x01{MAX_DELAY_MS}\x02", MAX_DELAY_MS),
        ("DELAY\x012\x02TIMER_DELAY_SEC\x013\x02", 5000),  # a level counts before a time
        ("DELAY\x010\x02TIMER_DELAY_SEC\x013\x02", 3000),
    ],
)
async def test_a_message_comes_at_the_time_that_it_asks_for(
    tmp_path: Path, properties: str, due_ms: int
) -> None:
    async with delaying(tmp_path) as one:
        assert (await one.send(properties)).code == 0
        one.at(due_ms - 1)
        assert await one.bodies() == []
        one.at(due_ms)
        assert await one.bodies() == [b"x"]


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x010\x02",
        "DELAY\x01-1\x02",
        "DELAY\x01\x02",
        "TIMER_DELAY_SEC\x010\x02",
        "TIMER_DELAY_MS\x01-5\x02",
        f"TIMER_DELIVER_MS\x01{START_MS}\x02",
        "TIMER_DELIVER_MS\x0112\x02",
    ],
)
async def test_a_message_whose_time_is_over_comes_at_once(tmp_path: Path, properties: str) -> None:
    async with delaying(tmp_path) as one:
        reply = await one.send(properties)
        assert (reply.code, reply.fields.get("recallHandle")) == (0, None)
        assert await one.bodies() == [b"x"]


async def test_a_time_that_is_none_or_too_far_is_refused_and_nothing_waits(tmp_path: Path) -> None:
    refused = (
        "DELAY\x01abc\x02",
        "DELAY\x01" + "9" * 5000 + "\x02",
        "DELAY\x01" + "9" * 19 + "\x02",
        "TIMER_DELAY_SEC\x011.5\x02",
        f"TIMER_DELAY_MS\x01{MAX_DELAY_MS + 1}\x02",
        "TIMER_DELAY_SEC\x014000000000000000\x02",
        f"TIMER_DELIVER_MS\x01{1 << 62}\x02",
        f"__STARTDELIVERTIME\x01{START_MS + MAX_DELAY_MS + 1}\x02",
    )
    async with delaying(tmp_path) as one:
        for properties in refused:
            reply = await one.send(properties)
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL, properties
            assert reply.remark
            assert len(one.broker.machine.state[DELAYS].waiting) == 0
            assert (await one.send("")).code == 0


async def test_a_level_does_not_count_from_a_time_that_a_clock_had_by_mistake(
    tmp_path: Path,
) -> None:
    async with delaying(tmp_path) as one:
        one.at(3_600_000)
        await one.send("", b"while the clock is an hour ahead")
        one.at(0)
        await one.send("DELAY\x011\x02", b"a second later")
        one.at(999)
        assert await one.bodies() == [b"while the clock is an hour ahead"]
        one.at(1_000)
        assert (await one.bodies())[1:] == [b"a second later"]


async def test_messages_come_in_the_order_of_their_times_from_every_level(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        async with trio.open_nursery() as nursery:
            for number in range(300):
                properties = f"TIMER_DELAY_MS\x01{1000 - number}\x02"
                nursery.start_soon(one.send, properties, str(number).encode())
        await one.send("DELAY\x011\x02", b"level")
        one.at(1000)
        reply = await one.client.pull("T", 0)
        await one.bodies()
        found: list[bytes] = []
        while len(found) < 301:
            reply = await one.client.pull("T", len(found))
            found += [message.body for message in decode_records(reply.body)]
        assert [body for body in found if body != b"level"] == [
            str(number).encode() for number in reversed(range(300))
        ]
        assert found[-1] in (b"0", b"level")


async def test_a_new_leader_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        for number in range(10):
            await one.send(f"TIMER_DELAY_SEC\x01{number + 1}\x02", b"%d" % number)
        one.at(5000)
        assert len(await one.bodies()) == 5
    async with delaying(tmp_path) as one:
        assert len(await one.bodies()) == 5
        one.at(7000)
        assert len(await one.bodies()) == 7
        one.at(20_000)
        assert await one.bodies() == [b"%d" % number for number in range(10)]


async def test_a_message_is_not_delivered_to_a_topic_that_was_deleted_or_made_again(
    tmp_path: Path,
) -> None:
    async with delaying(tmp_path) as one:
        for topic in ("gone", "again"):
            await one.send("DELAY\x011\x02", topic=topic)
            assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)).code == 0
        await one.client.send("again", b"new")
        one.at(1000)
        assert await one.bodies("again") == [b"new"]
        delays = one.broker.machine.state[DELAYS]
        assert (len(delays.waiting), delays.dropped) == (0, 2)
        assert (await one.client.pull("gone", 0)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_message_that_retention_moves_is_not_delivered_to_a_topic_made_again(
    tmp_path: Path,
) -> None:
    async with delaying(tmp_path) as one:
        await one.send(TIMED.format(10_000), body=b"old", topic="again")
        await one.send(TIMED.format(10_000), body=b"kept", topic="kept")
        assert (await one.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="again")).code == 0
        await one.client.send("again", b"new")
        state = one.broker.machine.state
        one.broker.parts[DELIVERIES].move_before(state.log_end)
        one.at(1)
        assert await one.bodies("again") == [b"new"]
        one.at(60_000)
        assert await one.bodies("again") == [b"new"]
        assert await one.bodies("kept") == [b"kept"]
        assert (state[DELAYS].delivered, state[DELAYS].dropped) == (1, 1)


async def test_nothing_goes_to_a_topic_while_it_is_deleted(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        await one.send("DELAY\x011\x02", topic="again")
        one.broker.parts[TOPIC_CHANGES].delete_topic("again", lambda _refusal: None)
        one.at(1000)  # the deletion is on its way into the log
        assert not one.broker.parts[DELIVERIES]._under_way

        async def is_sent() -> bool:
            return (await one.client.send("again", b"new")).code == 0

        await until(is_sent)
        one.broker.parts[DELIVERIES].begin_term()  # else it pauses
        one.at(2000)
        assert await one.bodies("again") == [b"new"]
        assert one.broker.machine.state[DELAYS].dropped == 1


async def test_a_batch_with_a_delayed_message_is_refused(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        pieces = b"".join(
            (len(p) + 23).to_bytes(4, "big")
            + bytes(12)
            + b"\0\0\0\1x"
            + len(p).to_bytes(2, "big")
            + p
            for p in (b"", b"DELAY\x012\x02")
        )
        reply = await one.client.send("T", pieces, m="true")
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert "DELAY" in str(reply.remark)
        assert await one.bodies() == []


async def test_too_many_messages_that_wait_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with delaying(tmp_path, limits=BrokerLimits(max_delayed_messages=2)) as one:
        codes = [(await one.send("DELAY\x011\x02")).code for _ in range(3)]
        assert codes == [0, 0, ResponseCode.SYSTEM_BUSY]
        one.at(1000)
        assert len(await one.bodies()) == 2
        assert (await one.send("DELAY\x011\x02")).code == 0


async def test_messages_that_are_sent_back_wait_among_as_many(tmp_path: Path) -> None:
    async with delaying(tmp_path, limits=BrokerLimits(max_delayed_messages=2)) as one:
        sent = await one.send("DELAY\x010\x02")
        back: dict[str, Any] = {
            "group": "g",
            "offset": int(sent.fields["msgId"][-16:], 16),
            "delayLevel": 1,
        }
        codes = [
            (await one.client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code
            for _ in range(3)
        ]
        assert codes == [0, 0, ResponseCode.SYSTEM_BUSY]


# --- recall ---------------------------------------------------------------------------------------


async def recall(one: Delayed, handle: str, topic: str = "T") -> Command:
    return await one.client.ask(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle)


@pytest.mark.feature("F41")
async def test_a_recalled_message_never_comes(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        handle = (await one.send(TIMED.format(10_000))).fields["recallHandle"]
        words = base64.urlsafe_b64decode(handle).decode().split(" ")
        assert words[:5] == ["v1", "T", "broker-a", str(START_MS + 10_000), "key"]
        reply = await recall(one, handle)
        assert (reply.code, reply.fields) == (0, {"msgId": "key"})
        assert (await recall(one, handle)).code == ResponseCode.ILLEGAL_OPERATION
        one.at(60_000)
        assert await one.bodies() == []


async def test_a_message_with_a_level_has_no_handle(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        assert "recallHandle" not in (await one.send(DELAY.format(3))).fields


async def test_a_message_is_recalled_by_its_time_and_key(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        await one.send(TIMED.format(10_000))
        for due_ms, wanted in (
            (START_MS + 9999, ResponseCode.ILLEGAL_OPERATION),
            (START_MS + 10_000, 0),
        ):
            words = f"v1 T broker-a {due_ms} key"
            handle = base64.urlsafe_b64encode(words.encode()).decode()
            assert (await recall(one, handle)).code == wanted
        one.at(60_000)
        assert await one.bodies() == []


async def test_a_message_that_was_delivered_is_not_recalled(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        handle = (await one.send(TIMED.format(1000))).fields["recallHandle"]
        one.at(1000)
        assert (await recall(one, handle)).code == ResponseCode.ILLEGAL_OPERATION
        assert await one.bodies() == [b"x"]


async def test_a_message_is_recalled_after_it_was_moved(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        handles = [(await one.send(TIMED.format(10_000))).fields["recallHandle"] for _ in range(3)]
        state = one.broker.machine.state
        before = [row.position for row in state[DELAYS].waiting.captured()]
        one.broker.parts[DELIVERIES].move_before(state.log_end)
        one.at(1)
        await one.bodies()
        after = [row.position for row in state[DELAYS].waiting.captured()]
        assert len(after) == 3
        assert min(after) > max(before)
        assert (await recall(one, handles[0])).code == 0
        one.at(60_000)
        assert len(await one.bodies()) == 2


async def test_a_handle_of_something_else_recalls_nothing(tmp_path: Path) -> None:
    others = (
        b"v1 T broker-a 5",
        b"v1 T broker-a 5 key x",
        b"v1 T broker-a 5 key -1",
        b"v1 T broker-a 5 key 9223372036854775808",
        b"v1 T broker-a x key 5",
        b"v2 T broker-a 5 key 5",
        b"v1 T another 5 key 5",
        b"v1 U broker-a 5 key 5",
        b"\xff\xfe",
        b"",
    )
    async with delaying(tmp_path) as one:
        await one.send(TIMED.format(10_000))
        for words in others:
            handle = base64.urlsafe_b64encode(words).decode()
            assert (await recall(one, handle)).code == ResponseCode.INVALID_PARAMETER, words
        assert (await recall(one, "%%%")).code == ResponseCode.INVALID_PARAMETER
        one.at(60_000)
        assert await one.bodies() == [b"x"]


async def test_a_handle_with_the_place_of_another_message_recalls_neither(tmp_path: Path) -> None:
    async with delaying(tmp_path) as one:
        await one.send(TIMED.format(10_000))
        (waiting,) = one.broker.machine.state[DELAYS].waiting.captured()
        words = f"v1 T broker-a 5 otherkey {waiting.position}"
        handle = base64.urlsafe_b64encode(words.encode()).decode()
        assert (await recall(one, handle)).code == ResponseCode.ILLEGAL_OPERATION
        one.at(60_000)
        assert await one.bodies() == [b"x"]


# --- by itself ------------------------------------------------------------------------------------


async def test_a_broker_delivers_by_itself_when_the_time_has_come(tmp_path: Path) -> None:
    began = trio.current_time()

    class Running(Clock):
        def __call__(self) -> int:
            return START_MS + round((trio.current_time() - began) * 1000)

    async with running_broker(tmp_path, clock=Running()) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"first")
        await client.send("T", b"later", i="TIMER_DELAY_MS\x01300\x02")
        reply = await client.pull("T", 1, sysFlag=6)
        (message,) = decode_records(reply.body)
        assert message.body == b"later"
        assert message.store_timestamp - message.born_timestamp >= 300


# --- retention ------------------------------------------------------------------------------------


async def test_retention_moves_what_waits_and_drops_the_rest(tmp_path: Path) -> None:
    around = Surroundings()
    async with delaying(tmp_path, **around.settings()) as one:
        broker = one.broker
        for number in range(3):
            await one.send("TIMER_DELAY_SEC\x01500000\x02", b"%d" % number)
        await send(one.client, 60, "other")
        delays, messages = broker.machine.state[DELAYS], broker.machine.state[MESSAGES]
        around.used = 86.0
        await looked(broker)
        assert messages.kept_position == 0  # they wait there
        one.at(1)
        await one.bodies()
        await looked(broker)
        assert messages.kept_position == 8192
        first = delays.waiting.first_position()
        assert first is not None
        assert first > messages.kept_position
        around.used = 10.0
        one.at(500_000_000)
        assert await one.bodies() == [b"0", b"1", b"2"]


def test_the_fold_refuses_to_drop_a_message_that_waits() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    waiting = with_behind(log, 0, Delay(77))
    log.append_record("A", 0, 1)
    log.append(encode_log_command(KeepLogFrom(2, log.entries[2].pos, 5)))
    log.append(encode_log_command(KeepLogFrom(1, waiting.pos, 5)))
    with_behind(log, 2, Deliver(waiting.body_pos))
    log.append(encode_log_command(KeepLogFrom(2, log.entries[2].pos, 5)))
    assert folded(log, state)[1:] == [True, True, False, True, True, True]


async def test_the_format_of_the_log_is_raised_once_and_before_the_first_delayed_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the leader does not raise it to the newest one at once.
    monkeypatch.setattr(BrokerMachine, "machine_version", ATTACHED_VERSION)
    async with delaying(tmp_path) as one:
        await one.send("")
        assert one.broker.machine.state[FORMATS].format_version == 1
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one.send, "DELAY\x011\x02")
        await one.send("DELAY\x011\x02")
    async with delaying(tmp_path) as one:
        await one.send("DELAY\x011\x02")
        assert one.broker.machine.state[FORMATS].format_version == ATTACHED_VERSION
        entries = one.broker.node.entries(0, 1 << 20)
        raised = encode_log_command(RaiseFormat(ATTACHED_VERSION))
        found = [at for at, entry in enumerate(entries) if entry.body == raised]
        behind = [at for at, entry in enumerate(entries) if b"DLB" in entry.body[8:]]
        assert (len(found), len(behind)) == (1, 7)
        assert found[0] < min(behind)


def test_equal_waiting_tables_look_equal() -> None:
    tables = [WaitingTable(), WaitingTable()]
    for table in tables:
        table.add([Waiting(7, 1000, 64), Waiting(3, 2000, 64)])
    assert tables[0] == tables[1]
    assert repr(tables[0]) == repr(tables[1])
    assert "due_ms=1000" in repr(tables[0])
