"""Transactions of appends and reads, as a history has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jepsen_like.checkers.checker import refuse_other_functions, wrong_value
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

FUNCTION = "txn"
APPEND = "append"
READ = "r"
_PARTS = 3


class Step(NamedTuple):
    """An append of a value to a key, or a read: its value is the list, or None if unknown."""

    function: str
    key: Value
    value: Value


class Seen(NamedTuple):
    """The list that a transaction first saw of a key, without its own appends."""

    key: Value
    elements: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Transaction:
    """One transaction; `steps` are those of its answer, or of its call if it got no answer."""

    operation: Operation
    steps: tuple[Step, ...]

    def appends(self) -> list[Step]:
        return [step for step in self.steps if step.function == APPEND]

    def reads(self) -> list[Step]:
        """Return its reads whose lists are known."""
        if not self.operation.ok:
            return []
        return [step for step in self.steps if step.function == READ and step.value is not None]

    def last_append_to(self, key: Value) -> Value:
        return [step.value for step in self.appends() if step.key == key][-1]

    def append_before(self, key: Value, value: Value) -> Value:
        """Return the value that it appended to a key right before another; None if that was the
        first.
        """
        values = [step.value for step in self.appends() if step.key == key]
        position = values.index(value)
        return values[position - 1] if position else None

    def place(self) -> str:
        """Return its place in the history."""
        operation = self.operation
        end = "" if operation.ended_line is None else f"-{operation.ended_line}"
        unknown = "" if operation.ok else ", outcome unknown"
        return f"lines {operation.invoked_line}{end}, process {operation.process}{unknown}"

    def told(self) -> str:
        """Return its steps in words."""
        words: list[str] = []
        for step in self.steps:
            if step.function == APPEND:
                words.append(f"append {shown(step.value, 40)} to {shown(step.key, 40)}")
            elif step.value is not None:
                words.append(f"read {shown(step.key, 40)} = {shown(step.value, 60)}")
        return "; ".join(words) or "reads only"


def transactions_of(history: History) -> list[Transaction]:
    """Return all transactions, also those that failed. Raises HistoryUnreadable."""
    refuse_other_functions(history, (FUNCTION,))
    return [_transaction(history, operation) for operation in history.operations]


def _transaction(history: History, operation: Operation) -> Transaction:
    line = operation.invoked_line
    value = operation.value
    if operation.ok and operation.result is not None:
        line, value = operation.ended_line or line, operation.result
    if not isinstance(value, tuple):
        shape = 'txn takes a list of ["append", key, value] and ["r", key, null]'
        raise wrong_value(history, line, shape, value)
    return Transaction(operation, tuple([_step(history, line, step) for step in value]))


def _step(history: History, line: int, step: Value) -> Step:
    shape = 'a step is ["append", key, value] or ["r", key, list]'
    if not isinstance(step, tuple) or len(step) != _PARTS:
        raise wrong_value(history, line, shape, step)
    function, key, value = step
    if function == APPEND and value is not None:
        return Step(APPEND, key, value)
    if function in (READ, "read") and (value is None or isinstance(value, tuple)):
        return Step(READ, key, value)
    raise wrong_value(history, line, shape, step)
