"""What operators change in queues: made-up histories with each fault, and without."""

from __future__ import annotations

import pytest

from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.checkers.checker import Request
from jepsen_like.checkers.report import Report, Verdict
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import Map, Value
from tests.jepsen_like.checkers.recorded import one, recorded

SECOND_NS = 1_000_000_000
CACHED = Map({"cached_ns": 5 * SECOND_NS})


def told(
    model: str, *calls: tuple[str, Value], settings: Map | None = None, key: Value = None
) -> Report:
    """The report on calls one after another, a second each.

    The name of a call that ends with `?` is one of unknown outcome, with `!` one that failed.
    """
    operations = []
    for number, (name, value) in enumerate(calls):
        line, outcome = 2 * number + 2, EventType.OK
        if name[-1] in "?!":
            outcome = EventType.INFO if name[-1] == "?" else EventType.FAIL
        function = name.rstrip("?!")
        receives = function in ("receive", "drain")
        begin_ns = number * SECOND_NS
        operation = Operation(0, function, key, None if receives else value, line, begin_ns)
        operation.outcome, operation.result = outcome, value if receives else None
        operation.ended_line, operation.ended_ns = line + 1, begin_ns
        operations.append(operation)
    history = History(operations, Header(settings=settings or Map()))
    return CATALOGUE[model].check(history, Request(allowed=("duplicated", "reordered")))


def send_later(number: int, due_s: int) -> tuple[str, Value]:
    return "send", Map({"id": number, "deliver_at_ns": due_s * SECOND_NS})


def received(
    *messages: int, key: object = None, function: str = "receive"
) -> list[tuple[object, ...]]:
    return [(1, "invoke", function, None, key), (1, "ok", function, list(messages), key)]


LATE = {"id": 1, "deliver_at_ns": 0}
DRAIN: tuple[str, Value] = ("drain", ())
SENT_AND_RECEIVED: list[tuple[str, Value]] = [("send", 1), ("receive", (1,))]
RESET: tuple[str, Value] = ("reset", None)
DELETE: tuple[str, Value] = ("delete", None)


def test_a_reset_after_which_all_comes_again_is_right() -> None:
    report = told("resets", *SENT_AND_RECEIVED, RESET, ("receive", (1,)), DRAIN)
    assert report.verdict is Verdict.VALID


def test_a_reset_that_is_undone_is_told() -> None:
    report = told("resets", *SENT_AND_RECEIVED, RESET, DRAIN)
    assert report.counts["undone"] == 1
    assert report.verdict is Verdict.INVALID


@pytest.mark.parametrize("reset", ["reset?", "reset!"])
def test_a_reset_that_nobody_acknowledged_promises_nothing(reset: str) -> None:
    report = told("resets", *SENT_AND_RECEIVED, (reset, None), DRAIN)
    assert report.verdict is Verdict.VALID


def test_a_reset_before_nothing_was_drained_is_undecided() -> None:
    assert told("resets", *SENT_AND_RECEIVED, RESET).verdict is Verdict.UNKNOWN


def test_a_message_that_a_receive_of_unknown_outcome_may_have_given_again_is_undecided() -> None:
    report = told("resets", *SENT_AND_RECEIVED, RESET, ("receive?", None), DRAIN)
    assert report.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("model", "events", "expected"),
    [
        (
            "resets",
            [
                *[*one("send", 1, key="a"), *received(1, key="a")],
                *[*one("send", 2, key="b"), *received(2, key="b")],
                *[*one("reset", None, key="a"), *received(1, key="a")],
            ],
            {},
        ),
        (
            "recalls",
            [
                *one("send", LATE, key="a"),
                *one("send", LATE, key="b"),
                *one("recall", 1, key="a"),
                *received(1, key="b"),
            ],
            {},
        ),
        (
            "remade",
            [
                *one("send", 1, key="a"),
                *[*one("send", 1, key="b"), *one("delete", None, key="a")],
                *received(1, key="b"),
            ],
            {},
        ),
        (
            "remade",
            [*one("send", 1, key="a"), *one("send", 2, key="b"), *one("delete", None, key="a")],
            {"lost": 1},
        ),
    ],
    ids=["reset", "recall", "received-after-deletion", "lost-beside-deletion"],
)
def test_a_change_of_one_key_is_no_change_of_another(
    model: str, events: list[tuple[object, ...]], expected: dict[str, int]
) -> None:
    drains = [*received(key="a", function="drain"), *received(key="b", function="drain")]
    report = CATALOGUE[model].check(
        recorded(*events, *drains), Request(allowed=("duplicated", "reordered"))
    )
    assert {kind: n for kind, n in report.counts.items() if kind != "duplicated"} == expected


def test_enqueue_is_send_where_queues_change() -> None:
    sent = one("enqueue", 1)
    undone = recorded(*sent, *received(1), *one("reset", None), *received(function="drain"))
    assert CATALOGUE["resets"].check(undone, Request()).counts == {"undone": 1}
    deleted = recorded(*sent, *one("delete", None), *received(function="drain"))
    assert "lost" not in CATALOGUE["remade"].check(deleted, Request()).counts
    back = recorded(*sent, *one("delete", None), *received(1), *received(function="drain"))
    assert CATALOGUE["remade"].check(back, Request()).counts == {"revived": 1}


def test_a_message_lost_beside_resets_is_told() -> None:
    assert told("resets", ("send", 1), RESET, DRAIN).counts["lost"] == 1


def test_a_message_that_was_recalled_and_comes_is_told() -> None:
    report = told("recalls", send_later(1, 2), ("recall", 1), ("receive", (1,)), DRAIN)
    assert report.counts["recalled"] == 1


@pytest.mark.parametrize("recall", ["recall", "recall?"])
def test_a_message_that_may_have_been_recalled_need_not_come(recall: str) -> None:
    report = told("recalls", send_later(1, 2), (recall, 1), DRAIN)
    assert report.verdict is Verdict.VALID


def test_a_recalled_message_after_which_nothing_was_drained_is_undecided() -> None:
    report = told("recalls", send_later(1, 2), DRAIN, ("recall", 1))
    assert report.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("recall", ["recall?", "recall!"])
def test_a_message_whose_recall_is_not_certain_may_come(recall: str) -> None:
    report = told("recalls", send_later(1, 2), (recall, 1), ("receive", (1,)), DRAIN)
    assert report.verdict is Verdict.VALID


def test_a_message_that_nobody_recalled_is_lost_or_early_as_without_recalls() -> None:
    beside = send_later(2, 9), ("recall", 2)
    assert told("recalls", send_later(1, 0), *beside, DRAIN).counts["lost"] == 1
    assert told("recalls", send_later(1, 9), *beside, ("receive", (1,))).counts["early"] == 1


def test_a_message_of_a_deleted_topic_need_not_come_and_one_of_the_new_topic_must() -> None:
    report = told("remade", ("send", 1), DELETE, ("send", 2), ("receive", (2,)), DRAIN)
    assert report.verdict is Verdict.VALID
    report = told("remade", ("send", 1), DELETE, ("send", 2), DRAIN, settings=CACHED)
    assert report.counts["lost"] == 1


def test_a_message_of_a_deleted_topic_that_comes_in_the_new_one_is_told() -> None:
    later = [("drain", ())] * 6
    report = told("remade", ("send", 1), DELETE, *later, ("receive", (1,)), settings=CACHED)
    assert report.counts["revived"] == 1


def test_what_clients_fetched_before_a_deletion_may_come_soon_after_it() -> None:
    report = told("remade", ("send", 1), DELETE, ("receive", (1,)), DRAIN, settings=CACHED)
    assert report.verdict is Verdict.VALID


def test_after_a_deletion_of_unknown_outcome_nothing_must_come_until_one_is_certain() -> None:
    unknown = ("delete?", None)
    assert told("remade", unknown, ("send", 1), DRAIN).counts.get("lost") is None
    assert told("remade", unknown, DELETE, ("send", 1), DRAIN).counts["lost"] == 1


def test_parts_are_checked_by_their_own_models_and_the_worst_counts() -> None:
    settings = Map(
        {
            "parts": Map(
                {
                    "a": Map({"model": "queue"}),
                    "b": Map({"model": "resets", "allowed": ("duplicated",)}),
                }
            )
        }
    )
    sent = told("parts", ("send", 1), DRAIN, settings=settings, key=("a", None))
    assert sent.counts["a lost"] == 1
    assert sent.verdict is Verdict.INVALID
    undone = told("parts", *SENT_AND_RECEIVED, RESET, DRAIN, settings=settings, key=("b", None))
    assert undone.counts == {"b undone": 1}


@pytest.mark.parametrize(
    ("parts", "key", "said"),
    [
        (None, ("a", None), "parts in the header"),
        (Map({"a": Map({"model": "queue"})}), None, r"a key is \[part, key\]"),
        (Map({"a": Map({"model": "queue"})}), ("b", None), r"a key is \[part, key\]"),
        (Map({"a": Map({"model": "none"})}), ("a", None), "names no model"),
        (Map({"a": "queue"}), ("a", None), "names no model"),
    ],
)
def test_parts_without_a_model_are_unreadable(parts: Value, key: Value, said: str) -> None:
    with pytest.raises(HistoryUnreadable, match=said):
        told("parts", ("send", 1), settings=Map({"parts": parts}), key=key)
