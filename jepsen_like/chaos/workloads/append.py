"""Transactions that read lists and append to them, all in one entry."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of
from jepsen_like.chaos.workloads.keys import rotating_key

STEPS_MAX = 4


def _carry_out(lists: State, function: str, key: Any, value: Any) -> object:
    """Return the steps of a transaction, with the values that its reads found."""
    if function != "txn" or not isinstance(value, list):
        return None
    return [_step(lists, step) for step in value]


def _step(lists: State, step: list[Any]) -> list[object]:
    kind, key, element = step
    there = lists.setdefault(str(key), [])
    if kind == "append":
        there.append(element)
        return step
    return [kind, key, list(there)]


class AppendWorkload:
    """Transactions on lists, checked for cycles as Elle does."""

    model = "list-append"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

    def generate(self, caller: Caller) -> Call:
        """Draw one to four steps; transactions that only read are answered by a member."""
        chance = caller.random
        steps: list[tuple[object, ...]] = []
        for step in range(chance.randint(1, STEPS_MAX)):
            key = rotating_key(caller)
            if chance.random() < 0.5:
                steps.append(("r", key, None))
            else:
                steps.append(("append", key, caller.number * STEPS_MAX + step))
        return Call("txn", None, tuple(steps), is_read=all(step[0] == "r" for step in steps))

    def query(self, machine: JsonCommands, call: Call) -> object:
        steps: Any = call.value
        return [[kind, key, list(machine.state.get(str(key), []))] for kind, key, _ in steps]
