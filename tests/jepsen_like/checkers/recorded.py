"""Histories written by hand, and at random, for the tests of checkers."""

from __future__ import annotations

from itertools import permutations
from random import Random

from hypothesis import strategies as st

from jepsen_like.checkers.models.model import Model
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.operation import Event, EventType, Operation
from jepsen_like.history.pairing import Pairing
from jepsen_like.history.value import Map, Value, frozen


def recorded(*events: tuple[object, ...], **settings: object) -> History:
    """A history of events `(process, type, function, value, key)`, one a line and a second.

    The last two may be left out, and a time in seconds may follow.
    """
    pairing = Pairing()
    for number, event in enumerate(events, 1):
        process, type_, function, value, key, at_s = (*event, *(None,) * 6)[:6]
        assert isinstance(process, int)
        time_s = at_s if isinstance(at_s, (int, float)) else number
        pairing.add(
            Event(
                number,
                process,
                int(time_s * 1e9),
                EventType(str(type_)),
                str(function),
                frozen(key),
                frozen(value),
            )
        )
    whole = Map({name: frozen(value) for name, value in settings.items()})
    return History(pairing.operations, Header(settings=whole), "test.jsonl")


def one(
    function: str, value: object, result: object = None, process: int = 0, **more: object
) -> list[tuple[object, ...]]:
    """The two events of an operation that nothing else overlaps."""
    key = more.get("key")
    return [
        (process, "invoke", function, value, key),
        (process, more.get("type", "ok"), function, value if result is None else result, key),
    ]


def told(
    function: str, result: object, process: int = 0, key: object = None
) -> list[tuple[object, ...]]:
    """The two events of a call of nothing that returned a result; nothing else overlaps it."""
    return [(process, "invoke", function, None, key), (process, "ok", function, result, key)]


def alone(*pairs: list[tuple[object, ...]], **settings: object) -> History:
    """A history of operations that happen one after another."""
    return recorded(*[event for pair in pairs for event in pair], **settings)


def is_linearizable(model: Model, operations: list[Operation]) -> bool:
    """The definition, tried out: each order of each choice of the unknown ones."""
    certain = [operation for operation in operations if operation.ok]
    unknown = [o for o in operations if not o.ok and not o.failed]
    for chosen in range(1 << len(unknown)):
        there = certain + [o for bit, o in enumerate(unknown) if chosen >> bit & 1]
        if any(_is_legal(model, order) for order in permutations(there)):
            return True
    return False


def _is_legal(model: Model, order: tuple[Operation, ...]) -> bool:
    state: Value | None = model.initial
    for number, operation in enumerate(order):
        if any(later.certain_from < operation.invoked_line for later in order[number + 1 :]):
            return False
        state = model.step(state, operation)
        if state is None:
            return False
    return True


@st.composite
def any_operations(
    draw: st.DrawFn, arguments: dict[str, st.SearchStrategy[tuple[Value, Value]]], most: int = 6
) -> History:
    """Histories of any outcomes, most of them wrong.

    Args:
        draw: of Hypothesis.
        arguments: for each function pairs of what it takes and what it returned.
        most: operations.
    """
    events: list[tuple[object, ...]] = []
    running: dict[int, tuple[str, Value, Value]] = {}
    called = 0
    while called < most or running:
        if called < most:
            process = draw(st.integers(0, 2))
        elif draw(st.booleans()):
            break
        else:
            process = draw(st.sampled_from(sorted(running)))
        if process in running:
            function, value, result = running.pop(process)
            type_ = draw(st.sampled_from(["ok", "ok", "ok", "info", "fail"]))
            events.append((process, type_, function, result if type_ == "ok" else value))
        else:
            called += 1
            function = draw(st.sampled_from(sorted(arguments)))
            value, result = draw(arguments[function])
            running[process] = function, value, result
            events.append((process, "invoke", function, value))
    return recorded(*events)


def true_history(
    random: Random, model: Model, calls: int, processes: int, choose: dict[str, list[Value]]
) -> list[tuple[object, ...]]:
    """The events of what a right object answers to processes that call at random.

    Each operation happens at a random moment between its call and its end; some outcomes are
    lost. Models are asked by trying: what a `read` returns is in `told_by`.
    """
    state: Value = model.initial
    events: list[tuple[object, ...]] = []
    waiting: dict[int, Operation] = {}
    done: dict[int, Operation] = {}
    while calls or waiting or done:
        process = random.randrange(processes)
        if process in done:
            operation = done.pop(process)
            lost = random.random() < 0.05
            type_ = "info" if lost else ("fail" if operation.failed else "ok")
            events.append((process, type_, operation.function, operation.result))
        elif process in waiting:
            operation = waiting.pop(process)
            operation.outcome = EventType.OK
            observing = operation.function in ("read", "get")
            operation.result = _value_of(state) if observing else operation.value
            after = model.step(state, operation)
            if after is None:
                operation.outcome = EventType.FAIL
            else:
                state = after
            done[process] = operation
        elif calls:
            calls -= 1
            function = random.choice(sorted(choose))
            value = random.choice(choose[function])
            waiting[process] = Operation(process, function, None, value, 0, 0)
            events.append((process, "invoke", function, value))
    return events


def _value_of(state: Value) -> Value:
    return state if isinstance(state, (int, str)) else None
