"""A queue that is first in, first out: `enqueue` and `dequeue`."""

from __future__ import annotations

from collections.abc import Hashable

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import shown


class FifoQueue:
    """One queue; a `dequeue` that found it empty returned null."""

    functions = frozenset({"enqueue", "dequeue"})
    blind = frozenset({"enqueue"})
    ignores_processes = True
    initial: Hashable = ()

    def observes(self, operation: Operation) -> bool:
        """Return whether it found the queue empty."""
        return operation.function == "dequeue" and operation.ok and operation.result is None

    def problem(self, operation: Operation) -> str | None:
        if operation.function == "enqueue" and operation.value is None:
            return "enqueue takes a value that is not null: null says that a queue is empty"
        return None

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        assert isinstance(state, tuple)
        if operation.function == "enqueue":
            return (*state, operation.value)
        if not operation.ok:
            return state[1:]
        if operation.result is None:
            return None if len(state) else state
        return state[1:] if len(state) and state[0] == operation.result else None

    def told(self, state: Hashable) -> str:
        return f"the queue holds {shown(state)}" if state != () else "the queue is empty"
