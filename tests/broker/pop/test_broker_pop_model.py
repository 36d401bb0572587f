"""Pops held against a model: one table of messages, each new, out until a time, or done."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.features import REGISTRY, empty_state
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state import BrokerState
from broker.log.state_snapshot import captured, restored
from broker.offsets.state import OFFSETS
from broker.pop.choice import Chooser
from broker.pop.commands import AckPopped, HidePopped, Pop, PoppedMessage
from broker.pop.request import PopRequest
from broker.pop.state import POPS
from broker.pulls.message_filter import MessageFilter
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER, Found, ReadResult
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.parts_alone import parts_alone

KEY = ("g", "A", 0)
INVISIBLE_MS = 10


class Reader:
    """A queue of messages, of which every third is not wanted."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self, _topic: str, _queue_id: int) -> int:
        return 0

    def end(self, _topic: str, _queue_id: int) -> int:
        return self.count

    def first(self, _topic: str) -> int:
        return 0

    def read(
        self, _topic: str, _queue_id: int, offset: int, most: int, codes: Any = None, *_: Any
    ) -> ReadResult:
        taken: list[int] = []
        at = offset
        while at < self.count and len(taken) < most:
            if codes is None or is_wanted(at):
                taken.append(at)
            at += 1
        messages = b"".join(struct.pack(">i16xq", 28, one) for one in taken)
        found = Found.MESSAGES if taken else Found.FILTERED
        return ReadResult(found, messages, len(taken), at, 0, self.count)


def is_wanted(offset: int) -> bool:
    return offset % 3 != 2


@dataclass
class Message:
    """A message of the model."""

    is_done: bool = False
    is_settled: bool = False  # acknowledged in order, behind one that is not
    popped_ms: int = 0
    visible_ms: int = 0
    times: int = 0
    behind: int = 0  # given again in order, but not as the first
    is_suspended: bool = False  # the next time is not counted


class Member:
    """The state of one member, and what its leader does."""

    def __init__(self) -> None:
        self.log = Log()
        self.state: BrokerState = empty_state()
        self.reader = Reader()
        self.chooser = Chooser(self.parts())
        self.handles: list[tuple[int, int]] = []
        self.folded_count = 0
        with_topic(self.log)
        self.fold_rest()

    def parts(self, log: object = None, **others: Any) -> Parts:
        return parts_alone(self.state, log, made={MESSAGE_READER: self.reader}, **others)

    def fold_rest(self) -> list[EntryRefused | None]:
        entries = self.log.entries[self.folded_count :]
        self.folded_count = len(self.log.entries)
        return fold(self.state, entries).results

    def carry_out(self, command: LogCommand) -> None:
        self.log.append(encode_log_command(command))
        assert self.fold_rest() == [None]

    def pop(self, now_ms: int, most: int, is_ordered: bool, attempt: str) -> list[int]:
        request = PopRequest("g", "A", 0, most, INVISIBLE_MS, 0, False, None, is_ordered, attempt)
        wanted = MessageFilter(frozenset([1]))
        choice = self.chooser.choose(KEY, request, wanted, now_ms)
        if choice is None:
            return []
        self.carry_out(
            Pop(
                *KEY,
                choice.popped_ms,
                choice.popped_ms + INVISIBLE_MS,
                choice.first,
                choice.next,
                choice.offsets,
                attempt if is_ordered else None,
                choice.begins,
                self.log.end,
            )
        )
        self.chooser.shown(KEY, choice.popped_ms + INVISIBLE_MS)
        self.handles += [(offset, choice.popped_ms) for offset in choice.offsets]
        return list(choice.offsets)

    def restart(self) -> None:
        """Another member leads, from a snapshot."""
        before = self.state
        count = self.reader.count
        self.state = restored(captured(before), REGISTRY)
        assert self.state == before
        self.chooser = Chooser(self.parts())
        self.reader.count = count


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5)),
        st.tuples(st.just("pop"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("hide"), st.integers(0, 30)),
        st.tuples(st.just("suspend"), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@given(script=steps, is_ordered=st.booleans(), keeps_handles=st.booleans())
def test_messages_are_new_out_or_done(
    script: list[tuple[str, int]], is_ordered: bool, keeps_handles: bool
) -> None:
    member, model, now_ms = Member(), list[Message](), 1000
    for number, (what, count) in enumerate(script):
        if what == "send":
            member.reader.count += count
            model += [Message() for _ in range(count)]
        elif what == "wait":
            now_ms += count
        elif what == "restart":
            member.restart()
        elif what == "pop":
            given_now = member.pop(now_ms, count, is_ordered, f"{number}")
            assert given_now == expected(model, now_ms, count, is_ordered)
            take(model, given_now, now_ms, is_ordered)
        elif member.handles:
            offset, popped_ms = member.handles[count % len(member.handles)]
            message = model[offset]
            is_its_own = not message.is_done and message.popped_ms == popped_ms
            named = PoppedMessage(*KEY, offset, popped_ms)
            if what == "ack":
                member.carry_out(AckPopped([named]))
                message.is_settled |= is_its_own
                settle(model, is_ordered)
            else:
                hidden_ms = max(now_ms, popped_ms + 1)
                is_suspended = keeps_handles and what == "suspend"
                hide = HidePopped(named, hidden_ms, hidden_ms + count, keeps_handles, is_suspended)
                member.carry_out(hide)
                if is_its_own and not message.is_settled:
                    message.visible_ms, message.is_suspended = hidden_ms + count, is_suspended
                    if not keeps_handles:
                        message.popped_ms = hidden_ms
                        member.handles.append((offset, hidden_ms))
                    member.chooser.shown(KEY, hidden_ms + count)
        check(member.state, model)


def expected(model: list[Message], now_ms: int, most: int, is_ordered: bool) -> list[int]:
    """What a pop is to be given."""
    out = [at for at, one in enumerate(model) if one.times and not one.is_done]
    due = [at for at in out if model[at].is_settled or model[at].visible_ms <= now_ms]
    fresh = [at for at, one in enumerate(model) if not one.times and not one.is_done]
    new = [at for at in fresh if is_wanted(at)]
    if is_ordered and out:
        return (due + new)[:most] if due == out else []
    return due[:most] or new[:most]


def settle(model: list[Message], is_ordered: bool) -> None:
    """In order, what is acknowledged is done once everything before it is."""
    for message in model:
        message.is_done |= message.is_settled
        if is_ordered and message.times and not message.is_done:
            return


def take(model: list[Message], offsets: list[int], now_ms: int, is_ordered: bool) -> None:
    """They are out; what lies before them and was never given is not wanted."""
    for at in offsets:
        message = model[at]
        message.popped_ms, message.visible_ms = now_ms, now_ms + INVISIBLE_MS
        if not message.is_suspended:
            message.behind += is_ordered and message.times > 0 and at != offsets[0]
            message.times += 1
        message.is_settled = message.is_suspended = False
        for before in model[:at]:
            before.is_done |= not before.times


def check(state: BrokerState, model: list[Message]) -> None:
    """The state says what the model says."""
    queue = state[POPS].queues.get(KEY)
    if queue is None:
        return
    out = {at: one for at, one in enumerate(model) if one.times and not one.is_done}
    assert list(queue.in_flight) == sorted(out)
    for at, flight in queue.in_flight.items():
        assert flight.is_settled is out[at].is_settled
        visible_ms = 0 if flight.is_settled else out[at].visible_ms
        assert (flight.behind, flight.is_suspended) == (out[at].behind, out[at].is_suspended)
        assert flight[:3] == (out[at].popped_ms, visible_ms, out[at].times)
    assert state[POPS].in_flight_count == len(out)
    assert state[OFFSETS].committed(*KEY) == queue.done_offset


def test_a_pop_repeats_what_its_answer_lost_and_no_other() -> None:
    member = Member()
    member.reader.count = 3
    assert member.pop(1000, 2, True, "a") == [0, 1]
    assert member.pop(1000, 2, True, "b") == []
    assert member.pop(1000, 2, True, "a") == [0, 1]
    in_flight = member.state[POPS].queues[KEY].in_flight
    assert [flight.times for flight in in_flight.values()] == [1, 1]
    assert [flight.popped_ms for flight in in_flight.values()] == [1001, 1001]


def test_a_second_pop_of_the_same_messages_is_refused() -> None:
    member = Member()
    member.reader.count = 3
    pop = Pop(*KEY, 1000, 1010, 0, 2, (0, 1), None, True, member.log.end)
    member.carry_out(pop)
    again = Pop(*KEY, 1001, 1011, 0, 2, (0, 1), None, False, member.log.end)
    member.log.append(encode_log_command(again))
    (refused,) = member.fold_rest()
    assert isinstance(refused, EntryRefused)
    assert member.state[POPS].in_flight_count == 2


def test_what_is_due_comes_before_anything_new_however_few_are_wanted() -> None:
    member = Member()
    member.reader.count = 5
    assert member.pop(1000, 4, False, "") == [0, 1, 3, 4]
    member.reader.count = 8
    assert [member.pop(2000, 1, False, "") for _ in range(5)] == [[0], [1], [3], [4], [6]]


def test_what_was_acknowledged_while_a_pop_of_it_was_on_its_way_is_not_given() -> None:
    member = Member()
    member.reader.count = 2
    assert member.pop(1000, 2, False, "") == [0, 1]
    late = Pop(*KEY, 2000, 2010, 2, 2, (0, 1), None, False, member.log.end)
    member.carry_out(AckPopped([PoppedMessage(*KEY, 0, 1000)]))
    member.carry_out(late)
    in_flight = member.state[POPS].queues[KEY].in_flight
    assert {at: one.popped_ms for at, one in in_flight.items()} == {1: 2000}
