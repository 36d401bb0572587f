"""Sets that only grow, and are read whole."""

from __future__ import annotations

from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands

# Calls before another set is begun: each read has all elements of its set.
CALLS_A_SET = 600


class Sets:
    """The state: the elements of each set, in the order in which they were added."""

    def __init__(self) -> None:
        self.sets: dict[str, list[object]] = {}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands."""
        if function != "add":
            return None
        self.sets.setdefault(str(key), []).append(value)
        return True

    def dump(self) -> object:
        """See Commands."""
        return self.sets

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.sets = {str(key): list(there) for key, there in dumped.items()}


def _machine() -> JsonCommands:
    return JsonCommands(Sets())


class SetWorkload:
    """Sets: every element that was added is in every later read, also at the end."""

    model = "set"
    machine = staticmethod(_machine)

    def __init__(self) -> None:
        self._begun = 0

    def generate(self, caller: Caller) -> Call:
        """One read to three elements."""
        self._begun = max(self._begun, caller.number // CALLS_A_SET)
        key = f"s{caller.number // CALLS_A_SET}"
        if caller.random.random() < 0.25:
            return Call("read", key, is_read=True)
        return Call("add", key, caller.number)

    def query(self, machine: Any, call: Call) -> object:
        """All elements of a set."""
        return list(machine.commands.sets.get(call.key, ()))

    def answered(self, call: Call, result: object) -> object:
        """What was added."""
        return call.value

    def state(self, machine: Any) -> object:
        """All sets."""
        return machine.commands.sets

    def final(self) -> list[Call]:
        """Every set, whole."""
        return [Call("read", f"s{number}", is_read=True) for number in range(self._begun + 1)]
