"""A lock: `acquire` and `release`, held by one process at a time."""

from __future__ import annotations

from collections.abc import Hashable

from jepsen_like.checkers.models.model import NOTHING
from jepsen_like.history.operation import Operation


class Mutex:
    """One lock; the key names it. Its state is the process that holds it."""

    functions = frozenset({"acquire", "release"})
    initial: Hashable = NOTHING

    def step(self, state: Hashable, operation: Operation) -> Hashable | None:
        if operation.function == "acquire":
            return operation.process if state is NOTHING else None
        return NOTHING if state == operation.process else None

    def told(self, state: Hashable) -> str:
        return "the lock is free" if state is NOTHING else f"process {state} holds the lock"
