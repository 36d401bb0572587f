from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.checkers.checker import Bounds, Request
from jepsen_like.checkers.linearizability import Linearizability, ModelFailed
from jepsen_like.checkers.models.counter import Counter
from jepsen_like.checkers.models.fifo_queue import FifoQueue
from jepsen_like.checkers.models.kv_append import KvAppend
from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.models.mutex import Mutex
from jepsen_like.checkers.models.register import CasRegister, Register
from jepsen_like.checkers.report import Report
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import Value
from tests.examples import examples
from tests.jepsen_like.checkers.recorded import (
    alone,
    any_operations,
    is_linearizable,
    one,
    recorded,
    true_history,
)
from tests.jepsen_like.checkers.recorded import told as told_by


def checked(model: Model, history: History, bounds: Bounds | None = None) -> Report:
    return Linearizability(model, bounds or Bounds()).check(history)


def verdict(model: Model, *events: tuple[object, ...]) -> str:
    return checked(model, recorded(*events)).verdict


def same(*values: Value) -> st.SearchStrategy[tuple[Value, Value]]:
    """What takes a value and returns it."""
    return st.sampled_from([(value, value) for value in values])


def told(*results: Value) -> st.SearchStrategy[tuple[Value, Value]]:
    """What takes nothing and returns a value."""
    return st.sampled_from([(None, result) for result in results])


CASES: list[tuple[Model, dict[str, st.SearchStrategy[tuple[Value, Value]]]]] = [
    (Register(), {"read": told(None, 1, 2), "write": same(1, 2)}),
    (CasRegister(), {"read": told(None, 1, 2), "write": same(1, 2), "cas": same((1, 2), (2, 1))}),
    (KvAppend(), {"get": told("", "a", "ab"), "append": same("a", "b"), "put": same("a", "")}),
    (Counter(), {"read": told(0, 1, 2, 3), "add": same(1, 2)}),
    (Mutex(), {"acquire": same(None), "release": same(None)}),
    (FifoQueue(), {"enqueue": same(1, 2), "dequeue": told(None, 1, 2)}),
]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("model", "arguments"), CASES, ids=lambda case: type(case).__name__)
def test_the_verdict_is_that_of_trying_every_order(
    model: Model, arguments: dict[str, st.SearchStrategy[tuple[Value, Value]]]
) -> None:
    seen: set[bool] = set()

    @settings(max_examples=examples(200), deadline=None)
    @given(any_operations(arguments))
    def holds(history: History) -> None:
        there = list(history.operations)
        expected = is_linearizable(model, there)
        report = checked(model, history)
        blind = getattr(model, "blind", ())
        if any(operation.ok and operation.function not in blind for operation in there):
            assert report.verdict == ("valid" if expected else "invalid")
        if not expected:
            the_failing_part_is_the_shortest(model, there, report)
        seen.add(expected)

    holds()
    assert seen == {True, False}


def the_failing_part_is_the_shortest(model: Model, there: list[Operation], report: Report) -> None:
    _, end = report.problems[0].lines
    part = [one for one in there if one.invoked_line < end and not one.failed]
    assert report.figures["operations_of_the_failing_part"] == len(part)
    assert not is_linearizable(model, part)
    before = [
        one
        if one.certain_from < end
        else Operation(one.process, one.function, one.key, one.value, one.invoked_line, 0)
        for one in part
    ]
    assert is_linearizable(model, before)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_right_register_answers_is_valid_and_a_stale_read_is_not(seed: int) -> None:
    random = Random(seed)
    choose: dict[str, list[Value]] = {
        "read": [None],
        "write": [1, 2, 3],
        "cas": [(1, 2), (2, 3), (3, 1)],
    }
    events = true_history(random, CasRegister(), 200, 5, choose)
    assert verdict(CasRegister(), *events) == "valid"
    # Nobody ever wrote 9, so nobody can have read it.
    reads = [n for n, event in enumerate(events) if event[1:3] == ("ok", "read")]
    at = random.choice(reads)
    spoilt = [*events[:at], (events[at][0], "ok", "read", 9), *events[at + 1 :]]
    report = checked(CasRegister(), recorded(*spoilt))
    assert report.verdict == "invalid"
    assert report.problems[0].lines[1] == at + 1


@pytest.mark.parametrize("seed", range(20))
def test_what_a_right_store_of_strings_answers_is_valid(seed: int) -> None:
    choose: dict[str, list[Value]] = {
        "get": [None],
        "append": [f"{n} " for n in range(100)],
        "put": ["", "p "],
    }
    events = true_history(Random(seed), KvAppend(), 150, 8, choose)
    assert verdict(KvAppend(), *events) == "valid"


def test_a_read_of_what_was_overwritten_before_it_began_is_invalid() -> None:
    report = checked(
        Register(), alone(one("write", 1), one("write", 2), one("read", None, 1, process=3))
    )
    assert report.verdict == "invalid"
    assert "lines 1 to 6" in report.summary
    text = "\n".join(report.text)
    assert "write 2 (lines 3-4, process 0)    then the register holds 2" in text
    assert "No order has a place for\n  read -> 1 (lines 5-6, process 3)" in text


def test_a_write_of_unknown_outcome_may_happen_much_later_or_never() -> None:
    unknown = [(0, "invoke", "write", 1), (0, "info", "write", None)]
    for reads in ([None, None], [None, 1], [1, 1]):
        told_reads = [event for value in reads for event in one("read", None, value, process=1)]
        if reads[0] is None:  # `one` takes None for the argument
            assert verdict(Register(), *unknown, *told_reads) == "valid"
    back = [*one("read", None, 1, process=1), *one("read", None, process=1)]
    assert verdict(Register(), *unknown, *back) == "invalid"


def test_a_write_that_failed_did_not_happen() -> None:
    failed = [(0, "invoke", "write", 1), (0, "fail", "write", 1)]
    assert verdict(Register(), *failed, *one("read", None, 1)) == "invalid"
    assert verdict(Register(), *failed, *one("read", None)) == "valid"


def test_each_key_is_a_register_of_its_own_and_the_wrong_one_is_named() -> None:
    events = [
        *one("write", 1, key="a"),
        *one("write", 2, key="b"),
        *one("read", None, 1, key="a"),
    ]
    assert verdict(Register(), *events) == "valid"
    report = checked(Register(), recorded(*events, *one("read", None, 1, key="b")))
    assert report.verdict == "invalid"
    assert 'of key "b"' in report.summary
    assert report.figures["key"] == "b"


def test_a_register_begins_with_what_the_header_says() -> None:
    history = alone(one("read", None, 5), initial=5)
    assert CATALOGUE["register"].check(history, Request()).verdict == "valid"
    assert checked(Register(), history).verdict == "invalid"


def test_a_lock_is_released_by_its_holder_and_acquired_when_it_is_free() -> None:
    taken = one("acquire", None, process=1)
    assert verdict(Mutex(), *taken, *one("release", None, process=1), *taken) == "valid"
    assert verdict(Mutex(), *taken, *one("acquire", None, process=2)) == "invalid"
    assert verdict(Mutex(), *taken, *one("release", None, process=2)) == "invalid"
    lost = [(1, "invoke", "release", None), (1, "info", "release", None)]
    assert verdict(Mutex(), *taken, *lost, *one("acquire", None, process=2)) == "valid"


def test_a_queue_gives_what_came_first() -> None:
    both = [*one("enqueue", 1), *one("enqueue", 2)]
    assert verdict(FifoQueue(), *both, *one("dequeue", None, 1)) == "valid"
    assert verdict(FifoQueue(), *both, *one("dequeue", None, 2)) == "invalid"
    assert verdict(FifoQueue(), *both, *one("dequeue", None)) == "invalid"
    assert verdict(FifoQueue(), *one("dequeue", None, 1)) == "invalid"


def hard(key: str | None = None) -> list[tuple[object, ...]]:
    """Thirty enqueues at once, and then a dequeue of what none of them put in."""
    return [
        *[(process, "invoke", "enqueue", process, key) for process in range(30)],
        *[(process, "ok", "enqueue", process, key) for process in range(30)],
        *one("dequeue", None, 99, key=key),
    ]


def test_a_search_that_is_out_of_time_or_memory_is_unknown() -> None:
    history = recorded(*hard())
    assert checked(FifoQueue(), history, Bounds(lambda: True)).verdict == "unknown"
    report = checked(FifoQueue(), history, Bounds(memory_bytes_max=5_000_000))
    assert report.verdict == "unknown"
    assert "given up with 1 object left" in report.summary


def test_a_key_that_takes_forever_does_not_hide_one_that_is_wrong() -> None:
    easy = [event for n in range(40) for event in one("enqueue", n, key="easy")]
    history = recorded(*hard("hard"), *easy, *one("dequeue", None, 1, key="easy"))
    report = checked(FifoQueue(), history)
    assert report.verdict == "invalid"
    assert report.figures["key"] == "easy"


def test_a_history_without_operations_proves_nothing() -> None:
    assert checked(Register(), recorded()).verdict == "unknown"
    failed = [(0, "invoke", "write", 1), (0, "fail", "write", 1)]
    assert verdict(Register(), *failed) == "unknown"


@pytest.mark.parametrize(
    ("model", "function", "value", "words"),
    [
        (Register(), "cas", [1, 2], 'cas" is no function'),
        (CasRegister(), "cas", 1, "a pair"),
        (KvAppend(), "append", 3, "takes a string"),
        (KvAppend(), "get", 3, "returns a string"),
        (Counter(), "add", True, "takes a number"),
        (Counter("x"), "add", 1, "initial in the header"),
        (FifoQueue(), "enqueue", None, "not null"),
    ],
)
def test_an_operation_that_no_model_can_take_makes_the_history_unreadable(
    model: Model, function: str, value: object, words: str
) -> None:
    with pytest.raises(HistoryUnreadable) as caught:
        verdict(model, (0, "invoke", function, value), (0, "ok", function, value))
    assert str(caught.value).startswith("test.jsonl:1: ")
    assert words in str(caught.value)


class Spoilt:
    """A model that a user might write."""

    initial = 0

    def __init__(self, result: object) -> None:
        self._result = result

    def step(self, state: object, operation: Operation) -> Value:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.mark.parametrize("result", [[], KeyError("x\ny"), ValueError("no"), AttributeError("a")])
def test_a_model_that_fails_is_named_in_one_line(result: object) -> None:
    with pytest.raises(ModelFailed, match="the model Spoilt failed: ") as caught:
        verdict(Spoilt(result), *one("write", 1))
    assert "\n" not in str(caught.value)


class TwoAccounts:
    """All keys are one object: what one loses the other has."""

    whole = True
    initial = (10, 0)

    def step(self, state: Value, operation: Operation) -> Value:
        assert isinstance(state, tuple)
        if operation.function == "move":
            return state[0] - 1, state[1] + 1
        return state if state[operation.key == "b"] == operation.result else None


def test_a_users_model_may_take_all_keys_as_one_object() -> None:
    move = one("move", None, key="a")
    assert verdict(TwoAccounts(), *move, *one("read", None, 1, key="b")) == "valid"
    assert verdict(TwoAccounts(), *move, *one("read", None, 10, key="a")) == "invalid"


def test_operations_of_one_argument_and_unknown_outcome_do_not_multiply_the_search() -> None:
    lost = [
        event for n in range(60) for event in ((n, "invoke", "write", n % 3), (n, "info", "write"))
    ]
    good = [event for n in range(60) for event in one("read", None, n % 3, process=99)]
    assert verdict(Register(), *lost, *good) == "valid"
    good += one("read", None, 9, process=99)
    assert verdict(Register(), *lost, *good) == "invalid"


@pytest.mark.parametrize("first", ["write", "cas"])
def test_which_unknown_operation_led_to_a_state_matters_later(first: str) -> None:
    # Either may bring the first 1, but only the write brings it again after the 5.
    calls = {"write": (1, "invoke", "write", 1), "cas": (2, "invoke", "cas", [0, 1])}
    second = "cas" if first == "write" else "write"
    assert (
        verdict(
            CasRegister(),
            *one("write", 0),
            calls[first],
            calls[second],
            *told_by("read", 1),
            *one("write", 5),
            *told_by("read", 1),
        )
        == "valid"
    )


def test_equal_operations_of_two_processes_differ_where_the_model_looks_at_processes() -> None:
    others = [(2, "invoke", "release", None), (1, "invoke", "release", None)]
    taken = [*one("acquire", None, process=1), *others, *one("acquire", None, process=3)]
    assert verdict(Mutex(), *taken) == "valid"


def test_a_read_of_what_nobody_wrote_is_found_without_a_search() -> None:
    lost = [
        event
        for n in range(200)
        for event in ((n, "invoke", "cas", [n % 7, n % 5]), (n, "info", "cas"))
    ]
    good = [event for n in range(100) for event in one("write", n % 7, process=999)]
    report = checked(CasRegister(), recorded(*lost, *good, *told_by("read", 99, 999)))
    assert report.verdict == "invalid"
    assert report.figures["shortest"] is True


def test_the_type_of_the_end_is_what_counts() -> None:
    history = recorded((0, "invoke", "write", 1))
    assert history.operations[0].outcome is EventType.INFO
    assert checked(Register(), history).verdict == "unknown"
