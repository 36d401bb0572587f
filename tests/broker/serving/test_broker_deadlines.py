"""Deadlines of what waits: who is told when, and how many are kept."""

from broker.pop.request import PopRequest
from broker.pop.waiting_pops import waiting_pops
from broker.serving.counts import Counts
from broker.serving.deadlines import Deadlines
from broker.serving.waiting_requests import Waiting
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.serving.test_broker_waiting import Origin


def test_what_still_waits_is_told_in_the_order_of_its_deadlines_a_few_at_a_time() -> None:
    answered = {"b", "d"}
    deadlines = Deadlines[str](lambda one: one not in answered, 2)
    for count, (deadline, one) in enumerate(((3.0, "c"), (1.0, "a"), (2.0, "b"), (2.0, "e")), 1):
        deadlines.add(deadline, one, count)
    deadlines.add(9.0, "f", 5)
    assert deadlines.take(0.9) == []
    assert deadlines.take(3.0) == ["a", "e"]
    assert deadlines.take(3.0) == ["c"]
    assert deadlines.take(8.9) == []
    deadlines.clear()
    assert deadlines.take(10.0) == []


def test_deadlines_of_what_was_answered_do_not_pile_up() -> None:
    waiting = {"one"}
    deadlines = Deadlines[str](waiting.__contains__, 16)
    deadlines.add(1.0, "one", 1)
    for number in range(5000):
        deadlines.add(1e9, f"answered {number}", 2)
        assert len(deadlines) < 2000
    assert deadlines.take(1e9) == ["one"]


def test_what_waits_again_until_the_same_time_is_told_once() -> None:
    waiting = {"a", "b"}
    deadlines = Deadlines[str](waiting.__contains__, 2)
    for _ in range(3):  # it was given up and waits again, twice
        deadlines.add(1.0, "a", 2)
    deadlines.add(1.0, "b", 2)
    assert deadlines.take(1.0) == ["a", "b"]


def test_a_pop_that_waits_again_is_answered_once_when_its_time_is_over() -> None:
    pops = waiting_pops(Counts())
    request = PopRequest("g", "T", 0, 1, 1000, 1.0, False, None, False, "")
    origin, command = Origin(), Command(RequestCode.POP_MESSAGE)
    first, second = (Waiting(origin, command, request, 1.0) for _ in range(2))
    pops.add(first)
    pops.remove(first)  # it is given something, which the log refuses
    pops.add(first)
    pops.add(second)
    assert pops.take_expired(1.0) == [first, second]
    assert len(pops) == 0
    assert len(pops) == 0
