"""Right histories made at random are valid; with one thing changed they are not."""

from collections.abc import Callable
from random import Random

import pytest

from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.checkers.checker import Request
from jepsen_like.checkers.report import Report
from jepsen_like.history.value import Value
from tests.jepsen_like.checkers.recorded import recorded, told

Events = list[tuple[object, ...]]
# What a process calls next, and what a call returns at the moment it happens.
Call = Callable[[Random, int], tuple[str, Value]]
Happen = Callable[[str, Value], Value]

SEEDS = [pytest.param(seed, marks=pytest.mark.long if seed > 11 else ()) for seed in range(25)]


def overlapping(random: Random, calls: int, call: Call, happen: Happen) -> Events:
    """The events of five processes whose calls overlap, each happening at one moment."""
    events: Events = []
    called: dict[int, tuple[str, Value]] = {}
    answered: dict[int, tuple[str, Value]] = {}
    while calls or called or answered:
        process = random.randrange(5)
        if process in answered:
            events.append((process, "ok", *answered.pop(process)))
        elif process in called:
            function, value = called.pop(process)
            answered[process] = function, happen(function, value)
        elif calls:
            calls -= 1
            called[process] = call(random, process)
            events.append((process, "invoke", *called[process]))
    return events


def checked(model: str, events: Events) -> Report:
    return CATALOGUE[model].check(recorded(*events), Request())


def changed(events: Events, at: int, result: object) -> Events:
    """The events with another result in one place."""
    return [*events[:at], (*events[at][:3], result), *events[at + 1 :]]


def answers(events: Events, function: str, *, full: bool = True) -> list[int]:
    """Where a function returned something."""
    return [
        n
        for n, event in enumerate(events)
        if event[1:3] == ("ok", function) and (event[3] not in (None, ()) or not full)
    ]


def right_queue(random: Random) -> Events:
    """Processes 0 to 2 send, 3 and 4 receive; in the end 3 drains what is left."""
    queue: list[int] = []
    numbers = iter(range(10_000))

    def call(_: Random, process: int) -> tuple[str, Value]:
        return ("send", next(numbers)) if process < 3 else ("receive", None)

    def happen(function: str, value: Value) -> Value:
        if function == "send":
            assert isinstance(value, int)
            queue.append(value)
            return value
        return queue.pop(0) if queue else None

    return [*overlapping(random, 80, call, happen), *told("drain", list(queue), 3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_queues_with_one_thing_changed(seed: int) -> None:
    random = Random(seed)
    events = right_queue(random)
    assert checked("queue", events).verdict == "valid"
    at = random.choice(answers(events, "receive"))
    message = events[at][3]
    assert checked("queue", changed(events, at, None)).counts == {"lost": 1}
    assert checked("queue", changed(events, at, [message, message])).counts == {"duplicated": 1}
    assert checked("queue", changed(events, at, 99_999)).counts == {"lost": 1, "invented": 1}
    answer = next(n for n in answers(events, "send") if events[n][3] == message)
    aborted = [*events]
    aborted[answer] = (events[answer][0], "fail", "send", message)
    assert checked("queue", aborted).counts == {"aborted": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_messages_of_a_producer_that_change_places_are_reordered(seed: int) -> None:
    events = right_queue(Random(seed))
    sender = {event[3]: event[0] for event in events if event[1:3] == ("ok", "send")}
    there = [n for n in answers(events, "receive") if events[n][0] == 3]
    first, second = next(
        (a, b)
        for a in there
        for b in there
        if a < b and sender[events[a][3]] == sender[events[b][3]]
    )
    swapped = changed(changed(events, first, events[second][3]), second, events[first][3])
    kinds = checked("queue", swapped).counts.keys()
    # Moved to the front, the later one may even be received before it was sent.
    assert kinds
    assert kinds <= {"reordered", "invented"}


@pytest.mark.parametrize("seed", SEEDS)
def test_sets_with_one_thing_changed(seed: int) -> None:
    random = Random(seed)
    there: list[int] = []
    numbers = iter(range(1000))

    def call(random: Random, process: int) -> tuple[str, Value]:
        return ("add", next(numbers)) if random.random() < 0.5 else ("read", None)

    def happen(function: str, value: Value) -> Value:
        if function == "read":
            return tuple(there)
        assert isinstance(value, int)
        there.append(value)
        return value

    events = overlapping(random, 60, call, happen)
    events += told("read", tuple(there))
    assert checked("set", events).verdict == "valid"
    element = random.choice(there)
    without = tuple(one for one in there if one != element)
    assert checked("set", changed(events, len(events) - 1, without)).counts == {"lost": 1}
    stale = [*events[:-2], *told("read", without), *events[-2:]]
    assert checked("set", stale).counts == {"stale": 1}
    at = random.choice(answers(events, "read"))
    result = events[at][3]
    assert isinstance(result, tuple)
    assert checked("set", changed(events, at, (*result, 9999))).counts["invented"] == 1
    assert checked("set", changed(events, at, (*result, result[0]))).counts == {"duplicated": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_counters_with_one_result_changed(seed: int) -> None:
    random = Random(seed)
    count = [0]

    def call(random: Random, process: int) -> tuple[str, Value]:
        return ("increment" if random.random() < 0.6 else "read"), None

    def happen(function: str, value: Value) -> Value:
        count[0] += function == "increment"
        return count[0]

    events = overlapping(random, 60, call, happen)
    assert checked("session-counter", events).verdict == "valid"
    at = random.choice(answers(events, "increment"))
    result = events[at][3]
    assert isinstance(result, int)
    for other in (result - 1, result + 1, 0, 1000):
        # The results are 1 to the last, each once: any other is there twice, or out of bounds.
        assert checked("session-counter", changed(events, at, other)).verdict == "invalid"


@pytest.mark.parametrize("seed", SEEDS)
def test_orders_of_keys_with_two_elements_changed(seed: int) -> None:
    random = Random(seed)
    log: list[int] = []
    numbers = iter(range(1000))

    def call(random: Random, process: int) -> tuple[str, Value]:
        return ("append", next(numbers)) if random.random() < 0.5 else ("read", None)

    def happen(function: str, value: Value) -> Value:
        if function == "read":
            begin = random.randrange(len(log) + 1)
            return tuple(log[begin:])
        assert isinstance(value, int)
        log.append(value)
        return value

    events = overlapping(random, 60, call, happen)
    events += [*told("read", tuple(log)), *told("read", tuple(log))]
    assert checked("key-order", events).verdict == "valid"
    at = random.randrange(len(log) - 1)
    swapped = [*log[:at], log[at + 1], log[at], *log[at + 2 :]]
    # The other read has them in their order, so that at least the two disagree.
    assert (
        "disagreeing"
        in checked("key-order", changed(events, len(events) - 1, tuple(swapped))).counts
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_offsets_with_one_fetch_changed(seed: int) -> None:
    random = Random(seed)
    committed: list[int | None] = [None]

    def call(random: Random, process: int) -> tuple[str, Value]:
        if process == 0:
            return "commit", (committed[0] or 0) + random.randrange(1, 5)
        return "fetch", None

    def happen(function: str, value: Value) -> Value:
        if function == "commit":
            assert isinstance(value, int)
            committed[0] = value
        return committed[0]

    events = overlapping(random, 60, call, happen)
    last = committed[0]
    events += [*told("fetch", last, 1), *told("fetch", last, 2)]
    assert checked("offsets", events).verdict == "valid"
    first = next(event[3] for event in events if event[1:3] == ("ok", "commit"))
    assert first != last
    assert checked("offsets", changed(events, len(events) - 1, first)).counts == {"backwards": 1}
    assert checked("offsets", changed(events, len(events) - 1, 99_999)).counts == {"invented": 1}
