"""Registers: `read`, `write`, and `cas` (compare and set)."""

from __future__ import annotations

from collections.abc import Hashable

from jepsen_like.checkers.models.model import NOTHING, as_state, as_value
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

PAIR = 2


class Register:
    """A register that is read and written."""

    functions = frozenset({"read", "write"})
    blind = frozenset({"write"})
    ignores_processes = True

    def __init__(self, initial: Value = None) -> None:
        self.initial: Hashable = as_state(initial)

    def observes(self, operation: Operation) -> bool:
        return operation.function == "read"

    def overwrites(self, operation: Operation) -> bool:
        return operation.function == "write"

    def toward(self, state: Hashable, observer: Operation) -> bool:
        """Return whether a read can come true in a state, without another write."""
        return as_state(observer.result) == state

    def brings(self, operation: Operation, observer: Operation) -> bool:
        """Return whether an operation writes the result of a read."""
        value = operation.value
        if operation.function == "cas":
            assert isinstance(value, tuple)
            return bool(value[1] == observer.result)
        return operation.function == "write" and value == observer.result

    def problem(self, operation: Operation) -> str | None:
        if operation.function == "cas":
            pair = operation.value
            if not isinstance(pair, tuple) or len(pair) != PAIR:
                return f"cas takes a pair [old, new], not {shown(pair, 40)}"
        return None

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "read":
            return state if not operation.ok or as_state(operation.result) == state else None
        return as_state(operation.value)

    def told(self, state: Hashable) -> str:
        return "the register is unset" if state is NOTHING else f"the register holds {shown(state)}"


class CasRegister(Register):
    """A register with compare and set; a `cas` whose comparison failed is of type `fail`."""

    functions = frozenset({"read", "write", "cas"})

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function != "cas":
            return super().step(state, operation)
        pair = operation.value
        assert isinstance(pair, tuple)
        return as_state(pair[1]) if as_value(state) == pair[0] else None
