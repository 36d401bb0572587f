"""Queues whose users gain and lose the right to send."""

from __future__ import annotations

import pytest

from jepsen_like.checkers.checker import Request
from jepsen_like.checkers.guarded_queues import check_guarded_queue
from jepsen_like.checkers.report import Report
from jepsen_like.history.errors import HistoryUnreadable
from tests.jepsen_like.checkers.recorded import recorded

Event = tuple[object, ...]

DRAIN: list[Event] = [(0, "invoke", "drain", None), (0, "ok", "drain", [])]


def change(function: str, user: str = "guest", type: str = "ok") -> list[Event]:
    return [(9, "invoke", function, user), (9, type, function, user)]


def begun(number: int, user: str = "guest") -> Event:
    return (number, "invoke", "send", {"id": number, "as": user})


def ended(number: int, type: str, user: str = "guest") -> Event:
    return (number, type, "send", {"id": number, "as": user})


def sent(number: int, type: str = "ok", user: str = "guest") -> list[Event]:
    return [begun(number, user), ended(number, type, user)]


def received(*numbers: int) -> list[Event]:
    return [(0, "invoke", "receive", None), (0, "ok", "receive", list(numbers))]


def report(*events: Event) -> Report:
    return check_guarded_queue(recorded(*events, *DRAIN), Request())


ALLOWED = [*change("allow"), *sent(1), *received(1)]


def test_messages_of_those_who_may_send_are_a_queue() -> None:
    assert report(*ALLOWED).verdict == "valid"
    assert report(*change("allow"), *sent(1), *sent(2), *received(2)).counts == {"lost": 1}


@pytest.mark.parametrize(
    "events",
    [
        [*change("deny"), *sent(2), *received(2)],
        [*change("deny"), *sent(2, "info"), *received(2)],
        [*change("deny"), *sent(2, "info"), *received(2), *change("allow")],
        [*change("deny"), begun(2), *received(2), ended(2, "info")],
        [*change("deny"), *sent(2), *change("allow"), *received(2)],
        [*change("deny", type="info"), *change("deny"), *sent(2), *received(2)],
        [
            *change("deny"),
            *sent(2, "info"),
            (0, "invoke", "receive", None),
            (0, "ok", "receive", 2),
        ],
    ],
    ids=[
        *("ok", "unknown", "allowed-again", "before-its-end", "received-late", "denied-twice"),
        "received-alone",
    ],
)
def test_a_denied_send_that_is_stored_is_found(events: list[Event]) -> None:
    found = report(*ALLOWED, *events)
    assert found.counts == {"stored though denied": 1}
    assert 'deny "guest"' in found.problems[0].how
    assert found.figures["denied"] == 1


def test_an_acknowledged_send_counts_as_stored_though_nobody_receives_it() -> None:
    found = report(*ALLOWED, *change("deny"), *sent(2))
    assert found.counts == {"stored though denied": 1, "lost": 1}


@pytest.mark.parametrize(
    "events",
    [
        [*change("deny"), *sent(2, "fail")],
        [*change("deny"), *sent(2, "info"), *change("allow"), *received(2)],
        [begun(2), *change("deny"), ended(2, "ok"), *received(2)],
        [*change("deny"), begun(2), *change("allow"), ended(2, "ok"), *received(2)],
        [*change("deny"), *change("allow"), *sent(2), *received(2)],
        [*change("deny", type="info"), *sent(2), *received(2)],
        [*change("allow", type="info"), *change("deny"), *sent(2), *received(2)],
        [*change("deny"), *sent(2, user="other"), *received(2)],
    ],
    ids=[
        *("refused", "stored-later", "begun-before", "allowed-meanwhile", "allowed-before"),
        *("denial-unknown", "grant-unknown", "another-user"),
    ],
)
def test_a_send_that_may_have_been_permitted_is_none(events: list[Event]) -> None:
    assert report(*ALLOWED, *events).verdict == "valid"


def test_a_send_that_is_denied_while_it_is_allowed_is_found() -> None:
    history = recorded(*ALLOWED, *sent(2, "fail"), *DRAIN)
    for one in history.operations:
        if one.failed:
            one.error = "denied: NO_PERMISSION"
    assert check_guarded_queue(history, Request()).counts == {"denied though allowed": 1}


def test_all_problems_of_the_messages_are_counted() -> None:
    events = [event for number in range(2, 52) for event in sent(number)]
    assert report(*ALLOWED, *events).counts == {"lost": 50}


def test_a_history_in_which_nothing_was_acknowledged_proves_nothing() -> None:
    assert report(*change("allow"), *sent(1, "info")).verdict == "unknown"


def test_a_send_without_a_user_is_unreadable() -> None:
    with pytest.raises(HistoryUnreadable, match="a send has"):
        report((1, "invoke", "send", 1), (1, "ok", "send", 1))
