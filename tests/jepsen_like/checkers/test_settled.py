"""Queues whose messages are given for a time."""

from __future__ import annotations

import pytest

from jepsen_like.checkers.checker import Request
from jepsen_like.checkers.report import Report
from jepsen_like.checkers.settled import check_settled
from jepsen_like.history.errors import HistoryUnreadable
from tests.jepsen_like.checkers.recorded import recorded

Event = tuple[object, ...]

INVISIBLE_MS = 10_000


def at(s: float, process: int, type: str, function: str, value: object) -> Event:
    return (process, type, function, value, None, s)


def sent(number: int, s: float) -> list[Event]:
    return [at(s, 0, "invoke", "send", number), at(s, 0, "ok", "send", number)]


def stored(number: int, delivery: int, **more: int) -> dict[str, int]:
    return {"id": number, "queue": 0, "offset": number, "delivery": delivery, **more}


def received(number: int, delivery: int, s: float) -> list[Event]:
    asked, told = {"invisible_ms": INVISIBLE_MS}, [stored(number, delivery)]
    return [at(s, 1, "invoke", "receive", asked), at(s, 1, "ok", "receive", told)]


def settled(
    function: str, number: int, delivery: int, s: float, type: str = "ok", **more: int
) -> list[Event]:
    value = stored(number, delivery, **more)
    return [at(s, 2, "invoke", function, value), at(s, 2, type, function, value)]


def acknowledged(number: int, delivery: int, s: float, type: str = "ok") -> list[Event]:
    return settled("acknowledge", number, delivery, s, type)


def hidden(delivery: int, s: float, ms: int, type: str = "ok") -> list[Event]:
    return settled("hide", 1, delivery, s, type, invisible_ms=ms)


def report(*events: Event, **settings: object) -> Report:
    drain = [at(99, 0, "invoke", "drain", None), at(99, 0, "ok", "drain", [])]
    return check_settled(recorded(*events, *drain, **settings), Request(allowed=["duplicated"]))


FIRST = [*sent(1, 0), *received(1, 1, 1)]


def test_what_is_acknowledged_once_its_time_is_over_is_a_queue() -> None:
    found = report(*FIRST, *received(1, 2, 11), *acknowledged(1, 2, 12))
    assert found.verdict == "valid"
    assert found.figures["settled"] == 1
    assert report(*FIRST, *acknowledged(1, 1, 2), *sent(2, 3)).counts == {"lost": 1}


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([*acknowledged(1, 1, 2), *received(1, 2, 20)], {"came again": 1}),
        (
            [*received(1, 2, 12), *acknowledged(1, 1, 13), *acknowledged(1, 2, 14)],
            {"stale handle": 1},
        ),
        ([*received(1, 2, 12), *hidden(1, 13, 100), *acknowledged(1, 2, 14)], {"stale handle": 1}),
        (
            [
                *[*received(1, 2, 12), *acknowledged(1, 2, 13, "fail")],
                *[*acknowledged(1, 1, 14), *acknowledged(1, 2, 15)],
            ],
            {"stale handle": 1},
        ),
        ([*received(1, 2, 10.9), *acknowledged(1, 2, 14)], {"given early": 1}),
        ([*received(1, 1, 2), *acknowledged(1, 1, 14)], {"given early": 1}),
        ([*hidden(1, 2, 1000), *received(1, 2, 2.9), *acknowledged(1, 2, 3)], {"given early": 1}),
        ([*hidden(1, 2, 20_000), *received(1, 2, 12), *acknowledged(1, 2, 13)], {"given early": 1}),
    ],
    ids=[
        *("acknowledged", "stale-acknowledgement", "stale-change", "not-yet-acknowledged"),
        "before-its-time",
        *("given-to-two", "before-its-shorter-time", "before-its-longer-time"),
    ],
)
def test_what_comes_again_though_it_was_settled_is_found(
    events: list[Event], counts: dict[str, int]
) -> None:
    found = report(*FIRST, *events)
    assert found.verdict == "invalid"
    assert {kind: n for kind, n in found.counts.items() if kind != "duplicated"} == counts


@pytest.mark.parametrize(
    "events",
    [
        [*acknowledged(1, 1, 2, "info"), *received(1, 2, 12), *acknowledged(1, 2, 13)],
        [*acknowledged(1, 1, 2, "fail"), *received(1, 2, 12), *acknowledged(1, 2, 13)],
        [*received(1, 2, 12), *acknowledged(1, 1, 13, "info"), *acknowledged(1, 2, 14)],
        [*received(1, 2, 12), *acknowledged(1, 2, 13), *acknowledged(1, 1, 14)],
        [*received(1, 2, 12), *acknowledged(1, 2, 13, "info"), *acknowledged(1, 1, 14)],
        [*hidden(1, 2, 1000), *received(1, 2, 3), *acknowledged(1, 2, 4)],
        [*hidden(1, 2, 1000, "info"), *received(1, 2, 3), *acknowledged(1, 2, 4)],
        [*hidden(1, 2, 20_000, "info"), *received(1, 2, 12), *acknowledged(1, 2, 13)],
        [*hidden(1, 2, 20_000), *acknowledged(1, 1, 21)],
        [*received(1, 2, 10.996), *acknowledged(1, 2, 14)],
    ],
    ids=[
        *("acknowledgement-unknown", "acknowledgement-refused", "stale-refused"),
        *("acknowledged-before", "perhaps-acknowledged-before"),
        *("hidden-shortly", "hidden-perhaps", "perhaps-not-hidden", "kept", "other-clock"),
    ],
)
def test_what_may_come_again_is_no_problem(events: list[Event]) -> None:
    assert report(*FIRST, *events, clock_error_ns=5_000_000).verdict == "valid"


def test_a_message_that_was_stored_twice_is_acknowledged_twice() -> None:
    """A proxy repeats a send whose answer was lost."""
    twin = {**stored(1, 1), "offset": 7}
    asked = {"invisible_ms": INVISIBLE_MS}
    again = [at(3, 1, "invoke", "receive", asked), at(3, 1, "ok", "receive", [twin])]
    assert report(*FIRST, *acknowledged(1, 1, 2), *again).verdict == "valid"


def test_a_receive_that_was_on_its_way_brings_nothing_that_was_acknowledged() -> None:
    begun = at(1.5, 1, "invoke", "receive", {"invisible_ms": INVISIBLE_MS})
    ended = at(3, 1, "ok", "receive", [stored(1, 2)])
    found = report(*FIRST, begun, *acknowledged(1, 1, 2), ended)
    assert found.counts["came again"] == 1


@pytest.mark.parametrize(
    "events",
    [
        [at(1, 3, "invoke", "acknowledge", 1)],
        [at(1, 3, "invoke", "receive", None), at(1, 3, "ok", "receive", [7])],
    ],
    ids=["acknowledge", "receive"],
)
def test_a_message_without_its_place_is_refused(events: list[Event]) -> None:
    with pytest.raises(HistoryUnreadable, match="offset"):
        report(*events)


def test_a_message_that_is_received_alone_is_no_list() -> None:
    asked = {"invisible_ms": INVISIBLE_MS}
    alone = [at(1, 1, "invoke", "receive", asked), at(1, 1, "ok", "receive", stored(1, 1))]
    assert report(*sent(1, 0), *alone, *acknowledged(1, 1, 2)).counts == {}
    assert report(*FIRST, *acknowledged(1, 1, 2)).verdict == "valid"


def test_a_history_without_an_acknowledgement_tells_nothing() -> None:
    assert report(*FIRST).verdict == "unknown"
