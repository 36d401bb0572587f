"""Strings that are read, replaced and appended to: `get`, `put`, `append`."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import shown


class Unobserved(Enum):
    """The state of a string that is replaced before any get."""

    UNOBSERVED = "unobserved"


UNOBSERVED = Unobserved.UNOBSERVED


class KvAppend:
    """One key of a store of strings. It begins as the empty string."""

    functions = frozenset({"get", "put", "append"})
    blind = frozenset({"put", "append"})
    ignores_processes = True
    initial = ""
    dead = UNOBSERVED

    def observes(self, operation: Operation) -> bool:
        return operation.function == "get"

    def overwrites(self, operation: Operation) -> bool:
        return operation.function == "put"

    def toward(self, state: Hashable, observer: Operation) -> bool:
        """Return whether appends may turn a state into the result of a get."""
        return isinstance(state, str) and _told(observer).startswith(state)

    def brings(self, operation: Operation, observer: Operation) -> bool:
        """Return whether a put may have begun the result of a get."""
        return operation.function == "put" and _told(observer).startswith(str(operation.value))

    def problem(self, operation: Operation) -> str | None:
        if operation.function == "get":
            told = operation.result if operation.ok else ""
            if told is not None and not isinstance(told, str):
                return f"get returns a string, not {shown(told, 40)}"
        elif not isinstance(operation.value, str):
            return f"{operation.function} takes a string, not {shown(operation.value, 40)}"
        return None

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "append":
            if state is UNOBSERVED:
                return state
            return state + operation.value  # type: ignore[operator, no-any-return]
        if operation.function == "put":
            return operation.value
        return state if not operation.ok or _told(operation) == state else None

    def told(self, state: Hashable) -> str:
        return f"the key holds {shown(state)}"


def _told(get: Operation) -> str:
    """Return the result of a get: null is the empty string."""
    return "" if get.result is None else str(get.result)
