from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger_mq.consuming.cached_queue import MAX_SPAN, CachedBytes, CachedQueue
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "a", 0)


def message(offset: int, size: int = 1) -> ReceivedMessage:
    return ReceivedMessage(QUEUE, offset, b"x" * size)


@pytest.mark.feature("F32")
def test_the_offset_to_commit_is_that_of_the_oldest_message_that_is_not_done() -> None:
    cached = CachedQueue(10)
    cached.add([message(10), message(11), message(13)], 14)
    first, second, third = cached.take(9)
    cached.done([second])
    assert cached.commit_offset == 10
    cached.done([first])
    assert cached.commit_offset == 13
    cached.done([third])
    assert cached.commit_offset == 14


def test_an_empty_pull_moves_the_offset_past_what_did_not_match() -> None:
    cached = CachedQueue(0)
    cached.add([], 800)
    assert (cached.next_offset, cached.commit_offset) == (800, 800)


def test_a_queue_is_full_by_number_by_bytes_and_by_span() -> None:
    by_number = CachedQueue(0, max_messages=2)
    by_number.add([message(0), message(1)], 2)
    assert by_number.full
    by_bytes = CachedQueue(0, max_bytes=10)
    by_bytes.add([message(0, size=10)], 1)
    assert by_bytes.full
    by_span = CachedQueue(0)
    by_span.add([message(0)], MAX_SPAN + 1)
    assert by_span.full
    by_span.done(by_span.take(1))
    assert not by_span.full


def test_a_queue_is_full_by_the_bytes_of_properties() -> None:
    cached = CachedQueue(0, max_bytes=1000)
    cached.add([ReceivedMessage(QUEUE, 0, b"x", b"own\x01" + b"x" * 1000 + b"\x02")], 1)
    assert cached.full
    (one,) = cached.take(1)
    assert len(one.properties["own"]) == 1000
    cached.done([one])
    assert not cached.full


def test_a_listener_that_changes_a_body_does_not_change_what_the_queue_counts() -> None:
    total = CachedBytes(10)
    cached, other = CachedQueue(0, total=total), CachedQueue(0, total=total)
    other.add([message(0)], 1)
    for offset in range(3):
        cached.add([message(offset, size=9)], offset + 1)
        (one,) = cached.take(1)
        one.body = b""
        cached.done([one])
    assert not other.full


def test_queues_that_hold_too_much_together_are_full_and_an_empty_one_is_not() -> None:
    total = CachedBytes(10)
    first, second, empty = (CachedQueue(0, total=total) for _ in range(3))
    first.add([message(0, size=6)], 1)
    second.add([message(0, size=3)], 1)
    assert not first.full
    second.add([message(1, size=1)], 2)
    assert [one.full for one in (first, second, empty)] == [True, True, False]


def test_those_that_wait_for_room_are_told_once_when_any_queue_has_made_it() -> None:
    told: list[str] = []
    total = CachedBytes(10)
    first, second = (CachedQueue(0, total=total) for _ in range(2))
    first.add([message(0, size=6), message(1, size=6)], 2)
    second.add([message(0, size=2)], 1)
    tell = lambda: told.append("room")  # noqa: E731 - one object, named twice
    total.when_room(tell)
    total.when_room(tell)
    second.done(second.take(1))
    assert told == []
    first.done(first.take(1))
    assert told == ["room"]
    first.reset(5)
    assert told == ["room"]
    assert not total.is_full


def test_a_message_that_is_pulled_twice_is_kept_once() -> None:
    cached = CachedQueue(0)
    cached.add([message(0), message(1)], 2)
    cached.add([message(1), message(2)], 3)
    assert [one.queue_offset for one in cached.take(9)] == [0, 1, 2]


def test_after_a_reset_what_was_in_work_does_not_move_the_offset() -> None:
    cached = CachedQueue(0)
    cached.add([message(0), message(1)], 2)
    in_work = cached.take(1)
    cached.reset(100)
    cached.done(in_work)
    cached.give_back(in_work)
    assert (cached.commit_offset, cached.waiting, len(cached)) == (100, 0, 0)


class CachedQueueModel(RuleBasedStateMachine):
    """Against a plain list: nothing is lost, nothing is committed before it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.cached = CachedQueue(0)
        self.done: set[int] = set()
        self.pulled: list[int] = []
        self.in_work: list[ReceivedMessage] = []
        self.next = 0

    @rule(gaps=st.lists(st.integers(0, 3), max_size=5), tail=st.integers(0, 3))
    def pull(self, gaps: list[int], tail: int) -> None:
        found: list[ReceivedMessage] = []
        for gap in gaps:
            found.append(message(self.next + gap))
            self.next += gap + 1
        self.next += tail
        self.pulled += [one.queue_offset for one in found]
        self.cached.add(found, self.next)

    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        self.in_work += self.cached.take(most)

    @rule(choice=st.randoms(use_true_random=False), back=st.booleans())
    def end_one(self, choice: Random, back: bool) -> None:
        if self.in_work:
            one = self.in_work.pop(choice.randrange(len(self.in_work)))
            if back:
                self.cached.give_back([one])
            else:
                self.cached.done([one])
                self.done.add(one.queue_offset)

    @invariant()
    def nothing_is_committed_before_it_is_done(self) -> None:
        open_offsets = [offset for offset in self.pulled if offset not in self.done]
        assert self.cached.commit_offset == (open_offsets[0] if open_offsets else self.next)
        assert len(self.cached) == len(open_offsets)
        assert self.cached.waiting + len(self.in_work) == len(open_offsets)


TestCachedQueueModel = CachedQueueModel.TestCase


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_messages_are_taken_in_the_order_they_were_pulled(sizes: list[int]) -> None:
    cached = CachedQueue(0)
    for size in sizes:
        begin = cached.next_offset
        cached.add([message(begin + number) for number in range(size)], begin + size)
    taken = [one.queue_offset for one in cached.take(1000)]
    assert taken == list(range(sum(sizes)))
