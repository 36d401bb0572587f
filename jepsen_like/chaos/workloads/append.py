"""Transactions that read lists and append to them, all in one entry."""

from __future__ import annotations

from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands
from jepsen_like.chaos.workloads.keys import rotating_key

STEPS_MAX = 4


class Lists:
    """The state: a list under each key."""

    def __init__(self) -> None:
        self.lists: dict[str, list[object]] = {}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands. A transaction returns its steps, with what its reads found."""
        if function != "txn" or not isinstance(value, list):
            return None
        return [self._step(step) for step in value]

    def _step(self, step: list[object]) -> list[object]:
        kind, key, element = step
        there = self.lists.setdefault(str(key), [])
        if kind == "append":
            there.append(element)
            return step
        return [kind, key, list(there)]

    def read(self, steps: Any) -> object:
        """What a transaction without appends finds."""
        return [[kind, key, list(self.lists.get(str(key), []))] for kind, key, _ in steps]

    def dump(self) -> object:
        """See Commands."""
        return self.lists

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.lists = {str(key): list(there) for key, there in dumped.items()}


def _machine() -> JsonCommands:
    return JsonCommands(Lists())


class AppendWorkload:
    """Transactions on lists, checked for cycles as Elle does."""

    model = "list-append"
    machine = staticmethod(_machine)

    def generate(self, caller: Caller) -> Call:
        """One to four steps; those that only read are answered by a member."""
        chance = caller.random
        steps: list[tuple[object, ...]] = []
        for step in range(chance.randint(1, STEPS_MAX)):
            key = rotating_key(caller)
            if chance.random() < 0.5:
                steps.append(("r", key, None))
            else:
                steps.append(("append", key, caller.number * STEPS_MAX + step))
        return Call("txn", None, tuple(steps), is_read=all(step[0] == "r" for step in steps))

    def query(self, machine: Any, call: Call) -> object:
        """What a transaction without appends finds."""
        return machine.commands.read(call.value)

    def state(self, machine: Any) -> object:
        """All lists."""
        return machine.commands.lists
