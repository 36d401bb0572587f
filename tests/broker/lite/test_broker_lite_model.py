"""The tables and the fold of lite topics held against plain models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.features import REGISTRY, empty_state
from broker.lite import rows
from broker.lite.commands import (
    AckLite,
    EndLite,
    HideLite,
    LiteGiven,
    LiteMessage,
    PopLite,
    PutLite,
    ResetLite,
)
from broker.lite.state import LITE
from broker.lite.table import LiteTable
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state import BrokerState
from broker.log.state_snapshot import captured, restored
from broker.topics.commands import PutTopic
from dledger import HEADER_BYTES
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record
from tests.broker.log.test_broker_fold import Log

GROUP, PARENT = "g", "L"
NAMES = ("a", "b")


@given(
    st.lists(
        st.tuples(st.sampled_from(("put", "set", "pop", "capture", "check")), st.integers(0, 9))
    )
)
def test_a_table_is_a_dictionary_whose_captures_do_not_change(steps: list[tuple[str, int]]) -> None:
    table: LiteTable[int] = LiteTable()
    model: dict[bytes, int] = {}
    captures: list[tuple[Any, dict[bytes, int]]] = []
    for number, (step, at) in enumerate(steps):
        key = b"%d" % at
        if step == "put":
            model.pop(key, None)
            model[key] = number
            table.put(key, number)
        elif step == "set":
            model[key] = number
            table.set(key, number)
        elif step == "pop":
            assert table.pop(key) == model.pop(key, None)
        elif step == "capture":
            captures.append((table.captured(), dict(model)))
        assert dict(table.items()) == model
        assert (len(table), table.get(key)) == (len(model), model.get(key))
        for shard in table.shards():
            assert list(shard) == [one for one in model if one in shard], "in the order of puts"
    for shards, then in captures:
        assert {name: value for shard in shards for name, value in shard.items()} == then


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 500)), min_size=1, max_size=60),
    st.sampled_from([1, 2, 1024]),
)
def test_a_row_knows_where_its_messages_are(steps: list[tuple[int, int]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_MESSAGES", block)
        patch.setattr(rows, "_BLOCK_BYTES", 6 * block)
        row: rows.Row | None = None
        positions: list[int] = []
        at = kept = 0
        for number, (more, kept_more) in enumerate(steps):
            at += more
            kept = min(at, kept + kept_more)
            positions.append(at)
            row = (
                rows.first_row(at, number) if row is None else rows.appended(row, at, number, kept)
            )
            first = rows.known_from(row)
            assert rows.end(row) == len(positions) == first + rows.count(row)
            assert [rows.position(row, one) for one in range(first, len(positions))] == (
                positions[first:]
            )
            assert (rows.last_ms(row), rows.last_position(row)) == (number, at)
            begin = sum(one < kept for one in positions)
            assert rows.begin(row, kept) == begin
            assert first <= begin
            assert rows.read_row(list(row) if isinstance(row, tuple) else row) == row


@pytest.mark.parametrize(
    "value", [b"", b"x" * 13, [], [b"x", b"y" * 12], None, 5, ["x"], [b"x" * 12, 5], "x" * 12]
)
def test_what_is_no_row_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        rows.read_row(value)


# --- the fold -----------------------------------------------------------------------------------


@dataclass
class Flight:
    since_ms: int
    until_ms: int  # 0: acknowledged behind one that is not
    times: int
    is_suspended: bool = False


@dataclass
class Topic:
    count: int = 0
    done: int = 0
    next: int = 0
    out: dict[int, Flight] = field(default_factory=dict)
    stored_ms: int = 0


class Member:
    """A member's log and state."""

    def __init__(self) -> None:
        self.log = Log()
        self.state: BrokerState = empty_state()
        self.now_ms = 1000
        self.folded = self.offset = 0
        self.handles: list[tuple[str, int, int]] = []
        self.say(PutTopic(TopicConfig(PARENT, 1, 1), 1))

    def say(self, command: Any) -> None:
        self.log.append(encode_log_command(command))
        self.fold_rest()

    def send(self, name: str) -> None:
        record = MessageRecord(
            PARENT,
            b"x",
            queue_offset=self.offset,
            physical_offset=self.log.end + HEADER_BYTES,
            store_timestamp=self.now_ms,
        )
        self.offset += 1
        self.log.append(encode_record(record) + encode_log_command(PutLite(name, 9, 99_999)))
        self.fold_rest()

    def fold_rest(self) -> None:
        entries = self.log.entries[self.folded :]
        self.folded = len(self.log.entries)
        assert fold(self.state, entries).results == [None] * len(entries)

    def restart(self) -> None:
        before = self.state
        self.state = restored(captured(before), REGISTRY)
        assert self.state == before


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("send", "pop", "pop", "wait", "ack", "hide", "suspend", "reset", "end", "restart")
        ),
        st.sampled_from(NAMES),
        st.integers(0, 12),
    ),
    max_size=60,
)


@given(STEPS)
@example([("send", "a", 0), ("end", "a", 0), ("send", "a", 0), ("wait", "a", 3), ("end", "a", 1)])
@example([("send", "a", 0), ("send", "a", 0), ("pop", "a", 3), ("wait", "a", 3), ("pop", "a", 3)])
def test_messages_of_lite_topics_are_given_in_order(steps: list[tuple[str, str, int]]) -> None:
    member, model = Member(), dict[str, Topic]()
    for step, name, count in steps:
        topic = model.get(name)
        now_ms = member.now_ms
        if step == "send":
            member.send(name)
            topic = model.setdefault(name, Topic())
            topic.count += 1
            topic.stored_ms = now_ms
        elif step == "wait":
            member.now_ms += count
        elif step == "restart":
            member.restart()
        elif step == "end":
            member.say(EndLite(PARENT, NAMES, now_ms - count, 0, now_ms))
            model = {at: one for at, one in model.items() if one.stored_ms >= now_ms - count}
        elif topic is None:
            continue
        elif step == "pop":
            again, new = min(len(topic.out), count), min(2, topic.count - topic.next)
            is_due = all(one.until_ms <= now_ms for one in topic.out.values())
            if again < len(topic.out):
                new = 0
            given_now = LiteGiven(
                name, topic.next, topic.next + new, again, topic.next != topic.done
            )
            if topic.out:
                given_now = given_now._replace(begins=False)
            elif member.state[LITE].done(GROUP, PARENT, name.encode()) is None:
                given_now = given_now._replace(begins=True)
            pop = PopLite(GROUP, PARENT, now_ms, now_ms + 10, "", [given_now], member.log.end)
            if not topic.out and not new:
                continue
            member.say(pop)
            if is_due and all(one.since_ms < now_ms for one in topic.out.values()):
                for offset in [*topic.out][:again]:
                    old = topic.out[offset]
                    topic.out[offset] = Flight(
                        now_ms, now_ms + 10, old.times + (not old.is_suspended)
                    )
                    member.handles.append((name, offset, now_ms))
                for offset in range(topic.next, topic.next + new):
                    topic.out[offset] = Flight(now_ms, now_ms + 10, 1)
                    member.handles.append((name, offset, now_ms))
                topic.next += new
        elif step == "reset":
            member.say(ResetLite(GROUP, PARENT, [(name, count)], now_ms))
            topic.done = topic.next = min(count, topic.count)
            topic.out.clear()
        elif member.handles:
            lite_topic, offset, since_ms = member.handles[count % len(member.handles)]
            message = LiteMessage(GROUP, PARENT, lite_topic, offset, since_ms)
            topic = model.get(lite_topic, Topic())
            flight = topic.out.get(offset)
            is_its_own = flight is not None and flight.since_ms == since_ms
            if step == "ack":
                member.say(AckLite([message]))
                if flight is not None and is_its_own:
                    flight.until_ms = 0
            else:
                hide = HideLite(message, now_ms, since_ms + count + 1, step == "suspend")
                member.say(hide)
                if flight is not None and is_its_own and flight.until_ms:
                    for at, one in topic.out.items():
                        is_meant = step == "suspend" and one.since_ms == since_ms and one.until_ms
                        if at == offset or is_meant:
                            one.until_ms = since_ms + count + 1
                            one.is_suspended = step == "suspend"
        for each in model.values():
            while each.out and each.out[min(each.out)].until_ms == 0:
                del each.out[min(each.out)]
            each.done = min(each.out, default=each.next)
        check(member.state, model)


def check(state: BrokerState, model: dict[str, Topic]) -> None:
    lite = state[LITE]
    assert lite.topic_count == len(model)
    assert lite.message_count == sum(one.count for one in model.values())
    assert lite.in_flight_count == sum(len(one.out) for one in model.values())
    for name, one in model.items():
        key = name.encode()
        row = lite.row(PARENT, key)
        assert row is not None
        assert rows.end(row) == one.count
        queue = lite.queue(GROUP, PARENT, key)
        assert (queue is not None) is bool(one.out)
        assert (lite.done(GROUP, PARENT, key) or 0) == one.done
        if queue is not None:
            assert queue.next_offset == one.next
            found = {
                at: (flight.popped_ms, flight.visible_ms, flight.times, flight.is_suspended)
                for at, flight in queue.in_flight.items()
            }
            assert found == {
                at: (flight.since_ms, flight.until_ms, flight.times, flight.is_suspended)
                for at, flight in one.out.items()
            }
