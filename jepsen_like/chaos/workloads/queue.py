"""Queues, first in, first out."""

from __future__ import annotations

from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands
from jepsen_like.chaos.workloads.keys import rotating_key

# The search of an order of a queue is hard: few calls a queue.
CALLS_A_QUEUE = 30
QUEUES_AT_ONCE = 8


class Queues:
    """The state: what each queue holds, the oldest first."""

    def __init__(self) -> None:
        self.queues: dict[str, list[object]] = {}

    def carry_out(self, function: str, key: object, value: object) -> object:
        """See Commands. A dequeue answers what it took, or None."""
        there = self.queues.setdefault(str(key), [])
        if function == "enqueue":
            there.append(value)
            return value
        return there.pop(0) if function == "dequeue" and there else None

    def dump(self) -> object:
        """See Commands."""
        return self.queues

    def load(self, dumped: object) -> None:
        """See Commands."""
        assert isinstance(dumped, dict)
        self.queues = {str(key): list(there) for key, there in dumped.items()}


def _machine() -> JsonCommands:
    return JsonCommands(Queues())


class QueueWorkload:
    """Queues: linearizable, first in, first out."""

    model = "fifo-queue"
    machine = staticmethod(_machine)

    def generate(self, caller: Caller) -> Call:
        """A little more is put in than taken out."""
        key = rotating_key(caller, QUEUES_AT_ONCE, CALLS_A_QUEUE)
        if caller.random.random() < 0.55:
            return Call("enqueue", key, caller.number)
        return Call("dequeue", key)

    def state(self, machine: Any) -> object:
        """All queues."""
        return machine.commands.queues
