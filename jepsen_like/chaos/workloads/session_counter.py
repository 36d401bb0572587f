"""Counters whose increments count once."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of

COUNTERS = 3


def _carry_out(counts: State, function: str, key: Any, value: Any) -> object:
    name = str(key)
    if function == "increment":
        counts[name] = counts.get(name, 0) + 1
    return counts.get(name, 0)


class SessionCounterWorkload:
    """Counters: each increment counts once, and no session sees a counter go back."""

    model = "session-counter"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

    def generate(self, caller: Caller) -> Call:
        """Draw as many reads as increments."""
        key = f"c{caller.random.randrange(COUNTERS)}"
        if caller.random.random() < 0.5:
            return Call("read", key, is_read=True)
        return Call("increment", key)

    def query(self, machine: JsonCommands, call: Call) -> object:
        return machine.state.get(str(call.key), 0)

    def final(self) -> list[Call]:
        return [Call("read", f"c{number}", is_read=True) for number in range(COUNTERS)]
