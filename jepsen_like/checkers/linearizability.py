"""Linearizability: every operation happened at one moment between its call and its end.

Objects of different keys are independent, so each is searched by itself (Herlihy and Wing, 1990:
linearizability is local). They take turns, with more steps each time: one key may take forever
while another is wrong at first sight.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from dledger.declared_error import DeclaredError
from jepsen_like.checkers.checker import Bounds, counted, no_function
from jepsen_like.checkers.failing_part import STEPS_AT_ONCE, FailingPart, failing_part
from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.overlaps import Overlaps
from jepsen_like.checkers.report import Problem, Report, Verdict
from jepsen_like.checkers.search import Search
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown, thawed
from jepsen_like.users_code import said

KIND = "not linearizable"
# A turn of an object, at first. Most histories are decided in less.
FIRST_TURN_STEPS = 1_000
# Operations shown of an order: the last ones, which matter most.
ORDER_SHOWN_MAX = 12


class ModelFailed(DeclaredError):
    """A model raised an error, or returned a state that cannot be used. One line."""

    problem: str


class Linearizability:
    """Checks histories against a model, within bounds."""

    def __init__(self, model: Model, bounds: Bounds) -> None:
        self._model = model
        self._bounds = bounds

    def check(self, history: History) -> Report:
        """Search an order for each object.

        Raises HistoryUnreadable if the model does not have an operation, ModelFailed.
        """
        try:
            return self._check(history)
        except (HistoryUnreadable, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # a user's model may raise anything
            problem = f"the model {type(self._model).__name__} failed: {said(error)}"
            raise ModelFailed(problem) from error

    def _check(self, history: History) -> Report:
        whole = self._objects(history)
        looked_at = f"{counted(len(history.operations), 'operation')} on {_objects(len(whole))}"
        if not whole:
            return Report(Verdict.UNKNOWN, "no operation that may have happened was recorded")
        answered = {operation.function for operation in history.operations if operation.ok}
        if not answered:
            # Each may never have happened, so every model allows them.
            return Report(Verdict.UNKNOWN, f"nothing was acknowledged; {looked_at}")
        if answered.issubset(getattr(self._model, "blind", ())):
            return Report(Verdict.UNKNOWN, f"nothing was read; {looked_at}")
        objects = [self._object(key, there) for key, there in whole]
        given_up, wrong = self._run(objects)
        if wrong is not None:
            return self._invalid(wrong, looked_at)
        if given_up:
            why = f"given up with {_objects(len(given_up))} left, for time or memory is over"
            return Report(Verdict.UNKNOWN, f"{why}; {looked_at}")
        return Report(Verdict.VALID, f"linearizable: {looked_at}")

    def _object(self, key: Value, operations: list[Operation]) -> _Object:
        overlaps = Overlaps(self._model, operations)
        return _Object(key, operations, overlaps, Search(self._model, overlaps))

    def _objects(self, history: History) -> list[tuple[Value, list[Operation]]]:
        """Return the operations on each object, without those that did not happen."""
        functions = getattr(self._model, "functions", None)
        problem_of = getattr(self._model, "problem", lambda operation: None)
        is_one = getattr(self._model, "whole", False)
        objects: dict[Value, list[Operation]] = {}
        for operation in history.operations:
            line = operation.invoked_line
            if functions is not None and operation.function not in functions:
                raise history.unreadable(line, no_function(operation.function, functions))
            if operation.failed:
                continue
            problem = problem_of(operation)
            if problem is not None:
                raise history.unreadable(line, problem)
            objects.setdefault(None if is_one else operation.key, []).append(operation)
        return list(objects.items())

    def _run(self, objects: Sequence[_Object]) -> tuple[list[_Object], _Object | None]:
        """Give each search its turns; return those that were given up, and the first that is
        invalid.
        """
        left = sorted(objects, key=lambda one: len(one.operations))
        given_up: list[_Object] = []
        turn = FIRST_TURN_STEPS
        while left:
            for one in list(left):
                verdict = self._turn(one.search, turn)
                if verdict is Verdict.INVALID:
                    return given_up, one
                if verdict is Verdict.VALID:
                    one.search.forget()
                    left.remove(one)
                if self._bounds.out_of_time():
                    return [*given_up, *left], None
            while sum(one.search.memory_bytes for one in left) > self._bounds.memory_bytes_max:
                largest = max(left, key=lambda one: one.search.memory_bytes)
                largest.search.forget()
                left.remove(largest)
                given_up.append(largest)
            turn *= 2
        return given_up, None

    def _turn(self, search: Search, steps: int) -> Verdict | None:
        while steps > 0:
            verdict = search.run(min(steps, STEPS_AT_ONCE))
            steps -= STEPS_AT_ONCE
            over = search.memory_bytes > self._bounds.memory_bytes_max
            if verdict is not None or over or self._bounds.out_of_time():
                return verdict
        return None

    def _invalid(self, wrong: _Object, looked_at: str) -> Report:
        """Report the shortest part that is wrong: up to the end that no order passes."""
        wrong.search.forget()
        found = failing_part(self._model, wrong.overlaps, wrong.search, self._bounds.out_of_time)
        late = found.late
        assert late.ended_line is not None
        part = [one for one in wrong.operations if one.invoked_line < late.ended_line]
        lines = (part[0].invoked_line, late.ended_line)
        key = "" if wrong.key is None else f" of key {shown(wrong.key, 40)}"
        how = f"{late} has no place in any order"
        summary = (
            f"{KIND}{key}, lines {lines[0]} to {lines[1]}: "
            f"{counted(len(part), 'operation')}; {looked_at}"
        )
        figures: dict[str, object] = {
            "key": thawed(wrong.key),
            "lines": list(lines),
            "operations_of_the_failing_part": len(part),
            "operations_placed": len(found.order),
            "shortest": found.shortest,
        }
        return Report(
            Verdict.INVALID,
            summary,
            [Problem(KIND, how, lines)],
            {KIND: 1},
            figures=figures,
            text=self._told(found),
        )

    def _told(self, found: FailingPart) -> list[str]:
        """Return the longest order, and the operations that have no place after it."""
        told = getattr(self._model, "told", lambda state: f"the state is {state!r}")
        order = found.order
        text = [f"An order of the first {counted(len(order), 'operation')}:" if order else "First,"]
        hidden = len(order) - ORDER_SHOWN_MAX
        state: Hashable = self._model.initial
        if not order:
            text.append(f"  {told(state)}")
        for number, operation in enumerate(order):
            before = state
            after = self._model.step(state, operation)
            state = after if after is not None else state
            if number == hidden - 1:
                text.append(f"  ... {counted(hidden, 'operation')} before: {told(state)}")
            if number >= hidden:
                then = f"    then {told(state)}" if state != before else ""
                text.append(f"  {operation}{then}")
        text += ["No order has a place for", f"  {found.late}"]
        if found.states:
            states = "; or ".join(told(one) for one in found.states)
            which = "every order" if found.all_states else "orders such as this one"
            text.append(f"After {which} of what ended before, {states}.")
        if found.others:
            text.append("These run when it ends; to place them first does not help:")
            text.extend(f"  {operation}" for operation in found.others[:ORDER_SHOWN_MAX])
        if not found.shortest:
            text.append("There may be a shorter part; its search was given up.")
        return text


class _Object(NamedTuple):
    """The operations on one key, and the search of their order."""

    key: Value
    operations: list[Operation]
    overlaps: Overlaps
    search: Search


def _objects(number: int) -> str:
    return counted(number, "object")
