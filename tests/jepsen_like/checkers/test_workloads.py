"""The checkers of workloads, each with histories that keep its promise and that break it."""

from random import Random

import pytest

from jepsen_like.checkers.bank import check_bank
from jepsen_like.checkers.catalogue import CATALOGUE, recognized
from jepsen_like.checkers.changed_queues import check_remade
from jepsen_like.checkers.checker import Check, Request
from jepsen_like.checkers.delays import check_delays
from jepsen_like.checkers.key_order import check_key_order
from jepsen_like.checkers.offsets import check_offsets
from jepsen_like.checkers.quantiles import quantiles, seconds
from jepsen_like.checkers.queues import check_broadcast, check_queue
from jepsen_like.checkers.report import EXAMPLES_MAX, Report
from jepsen_like.checkers.session_counter import check_session_counter
from jepsen_like.checkers.sets import check_set
from jepsen_like.checkers.settled import check_settled
from jepsen_like.checkers.statistics import check_statistics
from jepsen_like.checkers.transactions import check_transactions
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.operation import Event, EventType
from jepsen_like.history.pairing import Pairing
from tests.examples import examples
from tests.jepsen_like.checkers.recorded import alone, one, recorded, told

Events = list[tuple[object, ...]]


def done(function: str, value: object = None, process: int = 0, key: object = None) -> Events:
    """A call of a value that happened, alone."""
    return one(function, value, value, process, key=key)


def lost(function: str, value: object, process: int = 0) -> Events:
    """A call whose outcome nobody knows."""
    return one(function, value, value, process, type="info")


def failed(function: str, value: object, process: int = 0) -> Events:
    """A call that did not happen."""
    return one(function, value, value, process, type="fail")


def report_of(check: Check, *pairs: Events, **settings: object) -> Report:
    return check(alone(*pairs, **settings), Request())


def kinds(check: Check, *pairs: Events, **settings: object) -> str:
    """The verdict, or the kinds of problems of an invalid history."""
    report = report_of(check, *pairs, **settings)
    assert (report.verdict == "invalid") == bool(report.counts)
    assert all(problem.kind in report.counts and problem.how for problem in report.problems)
    return ", ".join(sorted(report.counts)) or report.verdict


# --- set ------------------------------------------------------------------------------------------

A, B = done("add", 1), done("add", 2)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([A, told("read", [1]), B, told("read", [2, 1])], "valid"),
        ([A, B, told("read", [1])], "lost"),
        ([A, told("read", [1]), told("read", [])], "lost"),
        ([A, told("read", []), told("read", [1])], "stale"),
        ([lost("add", 1), told("read", [1]), told("read", [])], "lost"),
        ([lost("add", 1), told("read", []), told("read", [1])], "valid"),
        ([failed("add", 1), told("read", [1])], "aborted"),
        ([failed("add", 1), A, told("read", [1])], "valid"),
        ([told("read", [1]), A], "invented"),
        ([told("read", [7])], "invented"),
        ([A, told("read", [1, 1])], "duplicated"),
        ([A, B], "unknown"),
        ([told("read", []), A], "unknown"),
        ([A, told("read", [1]), B], "valid"),
        ([done("add", 1, key="a"), told("read", [], key="b")], "unknown"),
        ([done("add", 1, key="a"), told("read", [], key="a")], "lost"),
    ],
)
def test_sets(events: list[Events], expected: str) -> None:
    assert kinds(check_set, *events) == expected


def test_a_read_that_ran_beside_an_add_may_have_it_or_not() -> None:
    for elements in ([], [1]):
        history = recorded(
            (0, "invoke", "add", 1),
            (1, "invoke", "read", None),
            (0, "ok", "add", 1),
            (1, "ok", "read", elements),
            *told("read", [1]),
        )
        assert check_set(history, Request()).verdict == "valid"


def test_the_figures_of_a_set_say_what_was_never_read_and_what_was_unknown() -> None:
    report = report_of(
        check_set, A, lost("add", 2), lost("add", 3), told("read", [1, 2]), done("add", 4)
    )
    wanted = {"acknowledged": 2, "unknown": 2, "unknown_and_found": 1, "never_read": 1, "lost": 0}
    assert wanted.items() <= report.figures.items()


# --- bank -----------------------------------------------------------------------------------------

MOVE = done("transfer", {"from": "a", "to": "b", "amount": 3})


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([told("read", {"a": 9, "b": 1}), MOVE, told("read", {"a": 6, "b": 4})], "valid"),
        ([told("read", {"a": 9, "b": 1}), MOVE, told("read", {"a": 6, "b": 1})], "wrong total"),
        ([told("read", {"a": 11, "b": -1})], "negative"),
        ([told("read", {"a": 9, "b": 1}), told("read", {"a": 10})], "other accounts"),
        ([MOVE], "unknown"),
        ([MOVE, told("read", {"a": 9, "b": 1})], "unknown"),
        ([told("read", {"a": 9}, key="x"), told("read", {"a": 8}, key="y")], "unknown"),
    ],
)
def test_banks(events: list[Events], expected: str) -> None:
    assert kinds(check_bank, *events) == expected


def test_the_header_has_the_total_of_a_bank() -> None:
    read = told("read", {"a": 9, "b": 1})
    assert kinds(check_bank, read, total=10) == "valid"
    assert kinds(check_bank, read, total=11) == "wrong total"


# --- broadcast ------------------------------------------------------------------------------------


def drained(process: int) -> Events:
    return told("drain", [], process)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([done("send", 1), told("receive", [1], 1), told("receive", [1], 2)], "valid"),
        ([done("send", 1), told("receive", [1], 1), drained(1), drained(2)], "lost"),
        ([done("send", 1), told("receive", [1], 1), drained(1), told("receive", [], 2)], "unknown"),
        ([done("send", 1), told("receive", [1, 1], 1), told("receive", [1], 2)], "duplicated"),
        ([told("receive", [7], 1), told("receive", [], 2)], "invented"),
        ([done("send", 1)], "unknown"),
    ],
)
def test_every_consumer_of_a_broadcast_receives_each_message(
    events: list[Events], expected: str
) -> None:
    assert kinds(check_broadcast, *events) == expected


def test_all_that_consumers_of_a_broadcast_lack_is_counted() -> None:
    sends = [done("send", number) for number in range(50)]
    assert report_of(check_broadcast, *sends, DRAIN).counts == {"lost": 50}


def test_a_message_that_one_consumer_of_a_broadcast_lacks_is_told_with_the_consumer() -> None:
    events = [done("send", 1), told("receive", [1], 1), drained(1), drained(2)]
    (problem,) = report_of(check_broadcast, *events).problems
    assert problem.how.startswith("consumer 2: 1, acknowledged in line 2")


# --- queue ----------------------------------------------------------------------------------------

M1, M2, DRAIN = done("send", 1), done("send", 2), told("drain", [], 1)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([M1, M2, told("receive", 1, 1), told("drain", [2], 1)], "valid"),
        ([M1, M2, told("receive", [1, 2], 1), told("receive", None, 1)], "valid"),
        ([done("enqueue", 1), told("dequeue", 1, 1), DRAIN], "valid"),
        ([M1, DRAIN], "lost"),
        ([M1, told("receive", None, 1)], "unknown"),
        ([DRAIN, M1], "unknown"),
        ([M1, lost("receive", None, 1), DRAIN], "unknown"),
        ([lost("send", 1), DRAIN], "unknown"),
        ([failed("send", 1), DRAIN], "unknown"),
        ([M1, told("receive", 1, 1), lost("send", 2), DRAIN], "valid"),
        ([lost("send", 1), told("receive", 1, 1), DRAIN], "valid"),
        ([M1, told("receive", 1, 1), told("receive", 1, 1)], "duplicated"),
        ([told("receive", 1, 1), M1], "invented"),
        ([told("receive", 9, 1)], "invented"),
        ([failed("send", 1), told("receive", 1, 1)], "aborted"),
        ([M1, M2, told("receive", [2, 1], 1)], "reordered"),
        ([M1, M2, told("receive", 2, 1), told("receive", 1, 2)], "valid"),
        ([M1, done("send", 2, 3), told("receive", [2, 1], 1)], "valid"),
        ([done("send", 1, key="a"), told("receive", 1, 1, key="b")], "invented"),
        ([], "unknown"),
    ],
)
def test_queues(events: list[Events], expected: str) -> None:
    assert kinds(check_queue, *events) == expected


def test_a_queue_that_acknowledged_nothing_says_so() -> None:
    report = report_of(check_queue, lost("send", 1), failed("send", 2), DRAIN)
    assert report.verdict == "unknown"
    assert report.summary.startswith("nothing was acknowledged; 0 messages acknowledged of 2 sent")


def test_problems_that_count_are_told_before_those_that_are_allowed() -> None:
    twice = [done("receive", [2], process=1), done("receive", [2], process=1)]
    history = alone(done("send", 1), done("send", 2), *twice, done("drain", [], process=1))
    report = check_queue(history, Request(allowed=["duplicated"]))
    assert [problem.kind for problem in report.problems] == ["lost", "duplicated"]


def test_kinds_that_are_allowed_are_told_and_not_counted() -> None:
    request = Request(allowed=["duplicated"])
    report = check_queue(alone(M1, told("receive", [1, 1], 1)), request)
    assert report.verdict == "valid"
    assert list(report.allowed) == ["duplicated"]
    assert report.counts == {"duplicated": 1}
    both = alone(M1, told("receive", [1, 1, 9], 1))
    assert check_queue(both, request).verdict == "invalid"


def test_all_problems_are_counted_and_some_are_told() -> None:
    report = report_of(check_queue, *[done("send", n) for n in range(100)], DRAIN)
    assert report.counts == {"lost": 100}
    assert len(report.problems) == EXAMPLES_MAX
    assert report.summary.startswith("100 lost; ")
    assert report.figures["lost"] == 100


# --- key-order ------------------------------------------------------------------------------------

X1, X2 = done("append", 1), done("append", 2)
BOTH = [
    (0, "invoke", "append", 1),
    (1, "invoke", "append", 2),
    (0, "ok", "append", 1),
    (1, "ok", "append", 2),
]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([X1, X2, told("read", [1, 2]), told("read", [2])], "valid"),
        ([X1, X2, told("read", [2, 1])], "reordered"),
        ([BOTH, told("read", [2, 1]), told("read", [2])], "valid"),
        ([BOTH, told("read", [2, 1]), told("read", [1, 2])], "disagreeing"),
        ([X1, told("read", [1, 1])], "duplicated"),
        ([told("read", [1]), X1], "invented"),
        ([failed("append", 1), told("read", [1])], "aborted"),
        ([lost("append", 1), X2, told("read", [2, 1])], "valid"),
        ([X1], "unknown"),
    ],
)
def test_orders_of_keys(events: list[Events], expected: str) -> None:
    assert kinds(check_key_order, *events) == expected


def test_reads_that_disagree_in_a_circle_are_told_as_a_circle() -> None:
    appends: Events = [(n, type_, "append", n) for type_ in ("invoke", "ok") for n in (1, 2, 3)]
    reads = [told("read", pair) for pair in ([1, 2], [2, 3], [3, 1])]
    report = report_of(check_key_order, appends, *reads)
    assert list(report.counts) == ["disagreeing"]
    assert set(report.problems[0].lines) == {8, 10, 12}


# --- session-counter ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([told("increment", 1), told("increment", 2), told("read", 2)], "valid"),
        ([lost("increment", None), told("increment", 2)], "valid"),
        ([lost("increment", None), told("increment", 1), told("read", 2)], "valid"),
        ([told("increment", 1), told("increment", 1)], "backwards, lost, repeated"),
        ([told("increment", 2)], "counted twice"),
        ([lost("increment", None), told("read", 2)], "counted twice"),
        ([told("increment", 1), told("read", 0)], "backwards, lost"),
        ([lost("increment", None), told("read", 1), told("read", 0)], "backwards"),
        ([lost("increment", None), told("read", 1), told("increment", 1)], "backwards"),
        ([failed("increment", None), told("read", 1)], "counted twice"),
        ([lost("increment", None)], "unknown"),
    ],
)
def test_counters_in_sessions(events: list[Events], expected: str) -> None:
    assert kinds(check_session_counter, *events) == expected


def test_a_counter_begins_where_the_header_says() -> None:
    assert kinds(check_session_counter, told("increment", 6), initial=5) == "valid"
    assert kinds(check_session_counter, told("increment", 5), initial=5) == "lost"


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([told("fetch", None), done("commit", 5), told("fetch", 5)], "valid"),
        ([done("commit", 5), done("commit", 7), told("fetch", 5)], "backwards"),
        ([done("commit", 5), told("fetch", None)], "backwards"),
        ([lost("commit", 7), done("commit", 5), told("fetch", 7), told("fetch", 5)], "backwards"),
        ([done("commit", 5), told("fetch", 6)], "invented"),
        ([failed("commit", 6), told("fetch", 6)], "invented"),
        ([told("fetch", 6), done("commit", 6)], "invented"),
        ([done("commit", 7), done("reset", 2), told("fetch", 2)], "valid"),
        ([done("commit", 7), lost("reset", 2), told("fetch", 7), told("fetch", 2)], "valid"),
        ([done("reset", 2), done("commit", 7), told("fetch", 2)], "backwards"),
        (
            [
                *[done("commit", 9), done("reset", 0)],
                *[done("commit", 3), done("commit", 5), told("fetch", 3)],
            ],
            "backwards",
        ),
        (
            [
                *[done("commit", 9), lost("reset", 0), told("fetch", 9)],
                *[done("reset", 1), told("fetch", 1)],
            ],
            "valid",
        ),
        ([told("poll", [1, 2]), told("poll", [3, 5])], "valid"),
        ([told("poll", [1, 2]), told("poll", [2])], "polled backwards"),
        ([told("poll", [2, 1])], "polled backwards"),
        ([told("poll", [1, 2]), done("assign"), told("poll", [1])], "valid"),
        ([told("poll", [1, 2]), told("poll", [1], 4)], "valid"),
        ([told("poll", [1]), told("poll", [1], 4)], "unknown"),
        ([told("poll", []), told("poll", None)], "unknown"),
        ([done("commit", 1)], "unknown"),
    ],
)
def test_offsets(events: list[Events], expected: str) -> None:
    assert kinds(check_offsets, *events) == expected


def test_a_reset_beside_a_commit_or_a_fetch_may_come_before_or_after_it() -> None:
    beside_commit: Events = [
        (0, "invoke", "commit", 7),
        *done("reset", 2, 1),
        (0, "ok", "commit", 7),
        *told("fetch", 2, 2),
    ]
    assert kinds(check_offsets, beside_commit) == "valid"
    beside_fetch: Events = [
        *done("commit", 7),
        (2, "invoke", "fetch", None),
        (1, "invoke", "reset", 2),
        (2, "ok", "fetch", 2),
    ]
    assert kinds(check_offsets, beside_fetch) == "valid"


# --- transactions ---------------------------------------------------------------------------------

HALF = done("prepare", 1)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([HALF, done("commit", 1), told("receive", 1, 1), DRAIN], "valid"),
        ([HALF, done("rollback", 1), DRAIN], "valid"),
        ([HALF, lost("commit", 1), told("receive", 1, 1)], "valid"),
        ([HALF, lost("commit", 1), DRAIN], "valid"),
        ([HALF, done("rollback", 1), told("receive", 1, 1)], "aborted"),
        ([HALF, lost("commit", 1), done("rollback", 1), told("receive", 1, 1)], "aborted"),
        ([HALF, told("receive", 1, 1)], "not committed"),
        ([HALF, lost("rollback", 1), told("receive", 1, 1)], "not committed"),
        ([HALF, told("receive", 1, 1), done("commit", 1)], "early"),
        ([HALF, done("commit", 1), DRAIN], "lost"),
        ([HALF, done("commit", 1)], "unknown"),
        ([HALF, done("commit", 1), told("receive", [1, 1], 1)], "duplicated"),
        ([HALF, done("commit", 1), done("rollback", 1), told("receive", 1, 1)], "decided twice"),
        ([told("receive", 1, 1), HALF], "invented"),
        ([HALF], "unknown"),
        ([HALF, done("rollback", 1)], "unknown"),
        ([DRAIN], "unknown"),
    ],
)
def test_transactions(events: list[Events], expected: str) -> None:
    assert kinds(check_transactions, *events) == expected


# --- delays ---------------------------------------------------------------------------------------


def delayed(name: object, due_s: float) -> Events:
    return done("send", {"id": name, "deliver_at_ns": int(due_s * 1e9)})


# The events of `alone` come a second each: a receive behind one send answers at 4 s.
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([delayed(1, 3.5), told("receive", 1, 1)], "valid"),
        ([delayed(1, 4.5), told("receive", 1, 1)], "early"),
        ([delayed(1, 3.5), DRAIN], "lost"),
        ([delayed(1, 3.5), told("receive", None, 1)], "unknown"),
        ([delayed(1, 3.5), told("receive", [1, 1], 1)], "duplicated"),
        ([told("receive", 1, 1)], "invented"),
        (
            [one("send", {"id": 1, "deliver_at_ns": 0}, type="fail"), told("receive", 1, 1)],
            "aborted",
        ),
    ],
)
def test_delays(events: list[Events], expected: str) -> None:
    assert kinds(check_delays, *events) == expected


def test_a_delayed_message_that_is_sent_again_makes_a_history_unreadable() -> None:
    with pytest.raises(HistoryUnreadable, match=r"1 is sent again \(first in line 1\)"):
        report_of(check_delays, delayed(1, 0.5), told("receive", 1, 1), delayed(1, 99.5))
    apart = [done("send", {"id": 1, "deliver_at_ns": 0}, key=key) for key in ("a", "b")]
    assert kinds(check_delays, *apart) == "unknown"


def test_delays_may_have_an_error_of_the_clock_and_a_limit_of_lateness() -> None:
    early = [delayed(1, 4.5), told("receive", 1, 1)]
    assert kinds(check_delays, *early, clock_error_ns=600_000_000) == "valid"
    late = [delayed(1, 2.5), told("receive", 1, 1)]
    assert kinds(check_delays, *late, late_after_ns=2_000_000_000) == "valid"
    assert kinds(check_delays, *late, late_after_ns=1_000_000_000) == "late"
    report = report_of(check_delays, *late)
    assert report.text == ["lateness: 50 % within 1.5 s, 95 % 1.5 s, 99 % 1.5 s, the longest 1.5 s"]


@pytest.mark.parametrize("name", ["delays", "recalls", "remade", "settled"])
def test_a_promise_about_times_is_refused_for_a_history_without_times(name: str) -> None:
    history = History(alone(delayed(1, 3)).operations, Header(), "a.log", timed=False)
    with pytest.raises(HistoryUnreadable, match="need times"):
        CATALOGUE[name].check(history, Request())


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_count_outcomes_and_measure_latencies() -> None:
    report = report_of(
        check_statistics, done("write", 1), lost("write", 2), failed("write", 3), told("read", 1)
    )
    assert report.verdict == "valid"
    write = report.figures["write"]
    assert isinstance(write, dict)
    assert (write["ok"], write["fail"], write["info"]) == (1, 1, 1)
    assert write["latency_ns"]["p50"] == 1_000_000_000
    assert "read: 1 ok, 0 failed, 0 unknown; 50 % within 1 s" in report.text[0]


def test_a_function_of_which_nothing_was_ok_makes_statistics_unknown() -> None:
    report = report_of(check_statistics, done("write", 1), lost("read", None))
    assert report.verdict == "unknown"
    assert 'nothing was ok of "read"' in report.summary
    assert kinds(check_statistics) == "unknown"


def test_the_longest_gap_is_that_of_a_reader_bound_to_a_member() -> None:
    pairing = Pairing()
    line = 0
    for at_s in (1, 2, 9, 10):
        for type_ in (EventType.INVOKE, EventType.OK):
            line += 1
            event = Event(line, 3, int(at_s * 1e9), type_, "read", member="n2")
            pairing.add(event)
    report = check_statistics(History(pairing.operations), Request())
    assert report.figures["longest_gaps_ns"] == {"process 3 at n2": 7_000_000_000}
    assert "process 3 at n2: longest gap 7 s" in report.text


@pytest.mark.parametrize(
    ("times", "expected"),
    [([], (0, 0, 0, 0, 0)), ([5], (1, 5, 5, 5, 5)), (range(1, 101), (100, 50, 95, 99, 100))],
)
def test_quantiles(times: list[int], expected: tuple[int, ...]) -> None:
    assert quantiles(times) == expected


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(1500, "1.5 us"), (2.5e6, "2.5 ms"), (3e9, "3 s"), (5e12, "5000 s")],
)
def test_times_are_told_for_people(time_ns: float, text: str) -> None:
    assert seconds(time_ns) == text


# --- all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "events", "words"),
    [
        (check_set, told("read", 3), "read returns a list"),
        (check_bank, told("read", [3]), "a map of account"),
        (check_bank, told("read", {"a": "x"}), "is a number"),
        (check_bank, told("read", {"a": True}), "is a number"),
        (check_queue, done("send", None), "without a message"),
        (check_queue, [*M1, *M1], "sent again (first in line 1)"),
        (check_key_order, told("read", 3), "read returns a list"),
        (check_key_order, [*X1, *X1], "appended again"),
        (check_session_counter, told("read", None), "a whole number"),
        (check_session_counter, told("increment", 1.5), "a whole number"),
        (check_offsets, done("commit", "x"), "commit takes an offset"),
        (check_offsets, told("fetch", "x"), "an offset or null"),
        (check_offsets, told("poll", [None]), "a list of offsets"),
        (check_delays, done("send", 1), "send takes"),
        (check_delays, done("send", {"id": 1, "deliver_at_ns": "x"}), "send takes"),
    ],
)
def test_a_value_of_another_shape_makes_a_history_unreadable(
    check: Check, events: Events, words: str
) -> None:
    with pytest.raises(HistoryUnreadable) as caught:
        check(recorded(*events), Request())
    assert words in str(caught.value)
    assert str(caught.value).startswith("test.jsonl:")


@pytest.mark.parametrize(
    ("check", "settings"),
    [
        (check_bank, {"total": "x"}),
        (check_session_counter, {"initial": None}),
        (check_delays, {"clock_error_ns": -1}),
        (check_settled, {"clock_error_ns": -1}),
        (check_remade, {"cached_ns": -1}),
    ],
)
def test_a_setting_of_another_shape_is_refused(check: Check, settings: dict[str, object]) -> None:
    with pytest.raises(HistoryUnreadable, match="in the header"):
        report_of(check, **settings)


# `parts` is made of others; its own tests are in test_changed_queues.py.
OF_ONE_MODEL = sorted(set(CATALOGUE) - {"parts"})


@pytest.mark.parametrize("name", sorted({*OF_ONE_MODEL} - {"statistics"}))
def test_a_function_of_another_model_makes_a_history_unreadable(name: str) -> None:
    with pytest.raises(HistoryUnreadable, match='"jump" is no function of this model'):
        CATALOGUE[name].check(recorded((0, "invoke", "jump", None)), Request())


@pytest.mark.parametrize("name", OF_ONE_MODEL)
def test_an_empty_history_proves_nothing(name: str) -> None:
    assert CATALOGUE[name].check(recorded(), Request()).verdict == "unknown"


@pytest.mark.parametrize("type_", ["fail", "info"])
@pytest.mark.parametrize(
    ("name", "functions", "value"),
    [
        ("register", ["write", "read"], 1),
        ("cas-register", ["cas", "read"], [1, 2]),
        ("kv-append", ["append", "get"], "a"),
        ("counter", ["add", "read"], 1),
        ("mutex", ["acquire", "release"], None),
        ("fifo-queue", ["enqueue", "dequeue"], 1),
        ("list-append", ["txn"], [["append", "x", 1]]),
        ("set", ["add", "read"], 1),
        ("bank", ["transfer", "read"], {"from": 1, "to": 2, "amount": 3}),
        ("queue", ["send"], 1),
        ("key-order", ["append", "read"], 1),
        ("session-counter", ["increment", "read"], None),
        ("offsets", ["commit", "fetch"], 1),
        ("transactions", ["prepare", "commit", "rollback"], 1),
        ("delays", ["send"], {"id": 1, "deliver_at_ns": 0}),
        ("recalls", ["send"], {"id": 1, "deliver_at_ns": 0}),
        ("resets", ["send", "reset"], 1),
        ("remade", ["send", "delete"], 1),
        ("statistics", ["read"], None),
    ],
)
def test_a_history_in_which_nothing_was_acknowledged_proves_nothing(
    name: str, functions: list[str], value: object, type_: str
) -> None:
    calls = [
        (number, kind, function, value)
        for number, function in enumerate(functions)
        for kind in ("invoke", type_)
    ]
    assert CATALOGUE[name].check(recorded(*calls), Request()).verdict == "unknown"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        *(("register", "write"), ("cas-register", "write"), ("counter", "add")),
        *(("kv-append", "put"), ("kv-append", "append"), ("fifo-queue", "enqueue")),
    ],
)
def test_writes_that_nobody_looked_at_prove_nothing(name: str, function: str) -> None:
    value = "x" if name == "kv-append" else 1
    events = [*done(function, value), *lost("read" if name == "register" else function, value, 1)]
    report = CATALOGUE[name].check(recorded(*events), Request())
    assert report.verdict == "unknown"
    assert report.summary.startswith("nothing was read")


@pytest.mark.parametrize(("check", "function"), [(check_set, "add"), (check_key_order, "append")])
def test_reads_of_nothing_that_no_write_was_acknowledged_for_prove_nothing(
    check: Check, function: str
) -> None:
    for ended in (failed(function, 1), lost(function, 1)):
        assert kinds(check, ended, told("read", [])) == "unknown"


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", OF_ONE_MODEL)
def test_any_small_history_gets_a_verdict_or_is_unreadable(name: str) -> None:
    """No checker fails on values that its workload would never have."""
    random = Random(name)
    functions = sorted(
        {"add", "read", "txn", "transfer", "send", "receive", "drain", "append", "increment"}
        | {"commit", "fetch", "poll", "assign", "reset", "prepare", "rollback", "enqueue"}
        | {"dequeue", "write", "cas", "get", "put", "acquire", "release", "recall", "delete"}
    )
    odd = [None, 1, "x", True, 1.5, [1], [[1]], {"a": 1}, [1, 2], {"id": 1}, [["r", 1, None]]]
    verdicts = set()
    for _ in range(examples(3000)):
        function, value = random.choice(functions), random.choice(odd)
        result = random.choice(odd)
        events = one(function, value, result, type=random.choice(["ok", "info", "fail"]))
        try:
            verdicts.add(CATALOGUE[name].check(recorded(*events), Request()).verdict.value)
        except HistoryUnreadable:
            verdicts.add("unreadable")
    assert len(verdicts) >= 2


@pytest.mark.parametrize(
    ("events", "model"),
    [
        (done("cas", [1, 2]), "cas-register"),
        (done("append", "x"), "kv-append"),
        (done("acquire"), "mutex"),
        (done("txn", []), "list-append"),
        (done("transfer", 1), "bank"),
        (done("send", 1), "queue"),
        (done("increment", 1), "session-counter"),
        (done("poll", 1), "offsets"),
        (done("prepare", 1), "transactions"),
        (done("add", 1), None),
        ([], None),
    ],
)
def test_a_model_is_recognized_where_only_one_has_the_functions(
    events: Events, model: str | None
) -> None:
    assert recognized(recorded(*events)) == model
