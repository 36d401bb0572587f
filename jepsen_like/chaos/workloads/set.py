"""Sets that only grow, and are read whole."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of

# Calls before another set is begun: each read has all elements of its set.
CALLS_A_SET = 600


def _carry_out(sets: State, function: str, key: Any, value: Any) -> object:
    """Add an element at the end of a set."""
    if function != "add":
        return None
    sets.setdefault(str(key), []).append(value)
    return True


class SetWorkload:
    """Sets: every element that was added is in every later read, also at the end."""

    model = "set"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

    def __init__(self) -> None:
        self._begun = 0

    def generate(self, caller: Caller) -> Call:
        """Draw one read to three elements."""
        self._begun = max(self._begun, caller.number // CALLS_A_SET)
        key = f"s{caller.number // CALLS_A_SET}"
        if caller.random.random() < 0.25:
            return Call("read", key, is_read=True)
        return Call("add", key, caller.number)

    def query(self, machine: JsonCommands, call: Call) -> object:
        return list(machine.state.get(str(call.key), ()))

    def answered(self, call: Call, result: object) -> object:
        return call.value

    def final(self) -> list[Call]:
        return [Call("read", f"s{number}", is_read=True) for number in range(self._begun + 1)]
