"""Two ordered consumers, the broker's lock table, and a network that delays and loses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.locks.state import QueueLocks
from dledger import SessionClock
from dledger_mq.consuming.own_locks import (
    FRESH_S,
    HELD_ELSEWHERE_S,
    LOST_S,
    RENEW_S,
    OwnLocks,
)
from remoting.bodies.message_queue import MessageQueue
from tests.examples import examples

A, B = (MessageQueue("T", "broker-a", number) for number in range(2))


def held(at: float = 0.0) -> OwnLocks:
    """Locks of a client that asked for A at this time, and got it."""
    locks = OwnLocks()
    locks.want(A)
    locks.answered([A], [A], at, at)
    return locks


def test_a_lock_counts_from_its_request_and_is_renewed_before_it_is_too_old_to_begin_with() -> None:
    locks = OwnLocks()
    assert locks.want(A)
    assert not locks.want(A)
    assert (locks.to_lock(0), locks.missing) == ([A], [A])
    assert locks.answered([A], [A], 1.0, 4.0).gained == [A]
    assert (locks.to_lock(1 + RENEW_S - 0.1), locks.missing) == ([], [])
    assert locks.next_request() == 1 + RENEW_S
    assert locks.is_fresh(A, 1 + FRESH_S - 0.1)
    assert not locks.is_fresh(A, 1 + FRESH_S)
    assert not locks.is_fresh(B, 1)
    assert locks.answered(locks.to_lock(21), [A], 21, 22).renewed == [A]
    assert locks.is_fresh(A, 21 + FRESH_S - 0.1)


def test_a_lock_that_nobody_renews_is_lost_before_the_broker_gives_it_to_another() -> None:
    locks = held()
    assert locks.next_loss() == LOST_S
    assert locks.take_lost(LOST_S - 0.1) == []
    assert locks.take_lost(LOST_S) == [A]
    assert locks.take_lost(LOST_S) == []
    # What was begun with it has to end first; until then it is neither asked for nor given back.
    assert (locks.to_lock(100), locks.to_unlock(100)) == ([], [])
    assert locks.answered([A], [A], 50, 56).gained == []
    locks.give_up(A, 100)
    assert locks.to_unlock(100) == [A]
    assert locks.want(A)
    assert locks.to_lock(100) == []
    locks.unlocked([A])
    assert locks.to_lock(100) == [A]


def test_an_answer_that_comes_when_the_lock_may_have_been_anothers_renews_nothing() -> None:
    answered = held().answered([A], [A], 50, LOST_S)
    assert (answered.lost, answered.renewed, answered.gained) == ([A], [], [])


def test_a_queue_that_another_holds_is_asked_for_again_soon() -> None:
    locks = OwnLocks()
    locks.want(A)
    locks.answered([A], [], 1, 1)
    assert locks.next_request() == 1 + HELD_ELSEWHERE_S
    assert held().answered([A], [], 1, 1).lost == [A]


def test_the_answer_to_a_request_from_before_the_queue_was_given_up_counts_for_nothing() -> None:
    locks = held()
    locks.give_up(A, 1)
    locks.want(A)
    assert locks.answered([A], [A], 0.5, 1).gained == []
    assert not locks.is_fresh(A, 1)


def test_what_cannot_be_given_back_for_ten_minutes_is_forgotten() -> None:
    locks = held()
    locks.give_up(A, 10)
    assert locks.to_unlock(609.9) == [A]
    assert locks.to_unlock(610) == []
    assert locks.next_request() == float("inf")


class Link(Enum):
    """What becomes of a client's requests."""

    WHOLE = "they are carried out and answered"
    CUT = "they wait on their way; the client gives each up and sends another"
    DEAF = "they are carried out, and the answers are lost"
    SLOW = "they are carried out, and the answers come 3 s later"


@dataclass
class Reader:
    """What a client read under one lock.

    Attributes:
        calls_of_others: how many calls the other client had made when this lock was had.
        call_ends_at: when the call that runs ends; None when none runs.
        is_leaving: no further call begins; the queue is given up when none runs.
    """

    calls_of_others: int
    call_ends_at: float | None = None
    is_leaving: bool = False


@dataclass
class Request:
    is_lock: bool
    queues: list[MessageQueue]
    asked_at: float
    is_awaited: bool = True


@dataclass
class Answer:
    request: Request
    given: list[MessageQueue]
    calls_of_others: int  # before it
    comes_at: float


@dataclass
class Consumer:
    """One client, as `PushConsumer` and `OrderedQueues` use its locks."""

    name: str
    locks: OwnLocks = field(default_factory=OwnLocks)
    is_queue_wanted: bool = False
    reader: Reader | None = None
    calls: int = 0
    call_s: float = 0.4
    lag_s: float = 0.0  # of a call that is cut off
    wire: deque[Request] = field(default_factory=deque)
    answer: Answer | None = None  # on its way; meanwhile nothing else is asked
    link: Link = Link.WHOLE
    is_frozen: bool = False

    def look_after_the_reader(self, now: float, calls_of_others: int) -> None:
        """End calls, begin them, give the queue up, or ask for it."""
        for _queue in self.locks.take_lost(now):
            self.lose(now)
        reader = self.reader
        if reader is not None:
            if reader.call_ends_at is not None and now >= reader.call_ends_at:
                reader.call_ends_at = None
            if reader.call_ends_at is None and (reader.is_leaving or not self.is_queue_wanted):
                self.reader = None
                self.locks.give_up(A, now)
            elif reader.call_ends_at is None and self.locks.is_fresh(A, now):
                # What it read under this lock is still next: no other has consumed since.
                assert reader.calls_of_others == calls_of_others, f"{self.name} reads old messages"
                reader.call_ends_at = now + self.call_s
                self.calls += 1
        elif self.is_queue_wanted:
            self.locks.want(A)
        elif self.locks.missing:
            self.locks.give_up(A, now)

    def lose(self, now: float) -> None:
        if self.reader is not None:
            self.reader.is_leaving = True
            if self.reader.call_ends_at is not None:
                self.reader.call_ends_at = min(self.reader.call_ends_at, now + self.lag_s)

    def hear(self, now: float) -> None:
        """Take the answer that has come."""
        if self.answer is None or now < self.answer.comes_at:
            return
        answer, self.answer = self.answer, None
        if not answer.request.is_lock:
            self.locks.unlocked(answer.request.queues)
            return
        answered = self.locks.answered(
            answer.request.queues, answer.given, answer.request.asked_at, now
        )
        if answered.lost:
            self.lose(now)
        if answered.gained:
            assert self.reader is None
            self.reader = Reader(answer.calls_of_others)

    def request(self, now: float) -> None:
        """Give up what has no answer, and send what is due."""
        if self.answer is not None:
            return
        for request in self.wire:
            if request.is_awaited:
                request.is_awaited = False
                self.locks.failed(request.queues, now)
        unlock = self.locks.to_unlock(now)
        queues = unlock or self.locks.to_lock(now)
        if queues:
            self.wire.append(Request(not unlock, queues, now))


class TwoConsumers:
    """Two members of a group, both of which may want one queue, and the group's lock table."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.table = QueueLocks()
        self.clock = SessionClock()
        self.term = 1
        self.has_leader = True
        self.consumers = (Consumer("c1"), Consumer("c2"))

    def time_passes(self, for_s: float) -> None:
        end = self.now + for_s
        while self.now < end:
            self.now += 0.5
            for one, other in (self.consumers, self.consumers[::-1]):
                if not one.is_frozen:
                    one.hear(self.now)
                    one.look_after_the_reader(self.now, other.calls)
                    self.check()
                    one.request(self.now)
                if self.has_leader and one.link is not Link.CUT:
                    self.carry_out(one, other)

    def carry_out(self, one: Consumer, other: Consumer) -> None:
        while one.wire:
            request = one.wire.popleft()
            named = [(queue.topic, queue.queue_id) for queue in request.queues]
            change = self.table.lock if request.is_lock else self.table.unlock
            change("g", one.name, named, self.clock.now_ms(self.now, self.term, self.table.time_ms))
            if not request.is_awaited:
                continue
            if one.link is Link.DEAF:
                one.locks.failed(request.queues, self.now)
                continue
            is_given = self.table.is_owner("g", one.name, A.topic, A.queue_id)
            comes_at = self.now + (3 if one.link is Link.SLOW else 0)
            one.answer = Answer(request, [A] if is_given else [], other.calls, comes_at)

    def the_share_changes(self, number: int, is_wanted: bool) -> None:
        self.consumers[number].is_queue_wanted = is_wanted

    def calls_take(self, number: int, for_s: float, lag: float) -> None:
        self.consumers[number].call_s = for_s
        self.consumers[number].lag_s = lag

    def a_link_changes(self, number: int, link: Link) -> None:
        self.consumers[number].link = link

    def a_process_stops_or_goes_on(self, number: int, is_frozen: bool) -> None:
        """Not during a call: nothing but its own process could end that one."""
        one = self.consumers[number]
        if one.reader is None or one.reader.call_ends_at is None:
            one.is_frozen = is_frozen

    def the_leader_dies(self) -> None:
        self.has_leader = False
        for one in self.consumers:
            for request in one.wire:
                one.locks.failed(request.queues, self.now)
            one.wire.clear()  # what it has not carried out, no other leader ever will

    def another_leads(self) -> None:
        if not self.has_leader:
            self.has_leader = True
            self.term += 1

    def check(self) -> None:
        busy = [one.name for one in self.consumers if one.reader and one.reader.call_ends_at]
        assert len(busy) <= 1, f"{busy} consume one queue at the same time"

    def settle(self) -> None:
        """In the end a consumer that is alone has the queue and works."""
        self.another_leads()
        for one in self.consumers:
            one.is_queue_wanted = one.is_frozen = False
            one.link, one.call_s = Link.WHOLE, 0.4
        self.time_passes(101)  # the longest call ends
        first = self.consumers[0]
        first.is_queue_wanted, before = True, first.calls
        # At the latest when what the other could not give back in ten minutes has expired.
        self.time_passes(63)
        assert first.calls > before


numbers = st.integers(0, 1)
events = st.one_of(
    st.tuples(st.just(TwoConsumers.the_share_changes), numbers, st.booleans()),
    st.tuples(
        st.just(TwoConsumers.calls_take),
        numbers,
        st.sampled_from((0.4, 20.0, 100.0)),
        st.sampled_from((0.0, 4.0)),
    ),
    st.tuples(st.just(TwoConsumers.a_link_changes), numbers, st.sampled_from(Link)),
    st.tuples(st.just(TwoConsumers.a_process_stops_or_goes_on), numbers, st.booleans()),
    st.tuples(st.just(TwoConsumers.the_leader_dies)),
    st.tuples(st.just(TwoConsumers.another_leads)),
)
spans = st.sampled_from((0.5, 2.0, 15.0, 31.0, 61.0))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(events, spans), min_size=10, max_size=40))
def test_two_consumers_never_work_on_one_queue_whatever_happens_between_them(
    story: list[tuple[tuple[Any, ...], float]],
) -> None:
    consumers = TwoConsumers()
    for one in consumers.consumers:
        one.is_queue_wanted = True  # as while they disagree about the members
    for (event, *arguments), for_s in story:
        event(consumers, *arguments)
        consumers.time_passes(for_s)
    consumers.settle()
