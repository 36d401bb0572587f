"""A counter: `add` (a number, which may be negative) and `read`."""

from __future__ import annotations

from collections.abc import Hashable

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown


def is_number(value: Value) -> bool:
    """Return whether a value is a number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Counter:
    """A counter. What an `add` returns is not looked at."""

    functions = frozenset({"add", "read"})
    blind = frozenset({"add"})
    ignores_processes = True

    def __init__(self, initial: Value = 0) -> None:
        self.initial: Hashable = initial

    def observes(self, operation: Operation) -> bool:
        return operation.function == "read"

    def problem(self, operation: Operation) -> str | None:
        if not is_number(self.initial):
            return f"initial in the header is {shown(self.initial, 40)}, not a number"
        if operation.function == "add" and not is_number(operation.value):
            return f"add takes a number, not {shown(operation.value, 40)}"
        return None

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "read":
            return state if not operation.ok or operation.result == state else None
        return state + operation.value  # type: ignore[operator, no-any-return]

    def told(self, state: Hashable) -> str:
        return f"the counter is at {shown(state)}"
