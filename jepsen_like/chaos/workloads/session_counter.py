"""Counters whose increments count once."""

from __future__ import annotations

from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands

COUNTERS = 3


class Counters:
    """The state: the count of each counter."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands. An increment answers the count after it."""
        name = str(key)
        if function == "increment":
            self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts.get(name, 0)

    def dump(self) -> object:
        """See Commands."""
        return self.counts

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.counts = {str(name): int(count) for name, count in dumped.items()}


def _machine() -> JsonCommands:
    return JsonCommands(Counters())


class SessionCounterWorkload:
    """Counters: each increment counts once, and nobody sees a counter go back."""

    model = "session-counter"
    machine = staticmethod(_machine)

    def generate(self, caller: Caller) -> Call:
        """Half reads, half increments."""
        key = f"c{caller.random.randrange(COUNTERS)}"
        if caller.random.random() < 0.5:
            return Call("read", key, is_read=True)
        return Call("increment", key)

    def query(self, machine: Any, call: Call) -> object:
        """The count."""
        return machine.commands.counts.get(call.key, 0)

    def state(self, machine: Any) -> object:
        """All counts."""
        return machine.commands.counts

    def final(self) -> list[Call]:
        """All counts."""
        return [Call("read", f"c{number}", is_read=True) for number in range(COUNTERS)]
