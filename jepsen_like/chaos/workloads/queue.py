"""Queues, first in, first out."""

from __future__ import annotations

from functools import partial
from typing import Any

from jepsen_like.chaos.service import Call, Caller
from jepsen_like.chaos.workloads.json_commands import JsonCommands, State, state_of
from jepsen_like.chaos.workloads.keys import rotating_key

# The search of an order of a queue is hard: few calls a queue.
CALLS_A_QUEUE = 30
QUEUES_AT_ONCE = 8


def _carry_out(queues: State, function: str, key: Any, value: Any) -> object:
    """Enqueue a value, or dequeue the oldest one and return it; None if there is none."""
    there = queues.setdefault(str(key), [])
    if function == "enqueue":
        there.append(value)
        return value
    return there.pop(0) if function == "dequeue" and there else None


class QueueWorkload:
    """Queues: linearizable, first in, first out."""

    model = "fifo-queue"
    machine = staticmethod(partial(JsonCommands, _carry_out))
    state = staticmethod(state_of)

    def generate(self, caller: Caller) -> Call:
        """Draw a few more enqueues than dequeues."""
        key = rotating_key(caller, QUEUES_AT_ONCE, CALLS_A_QUEUE)
        if caller.random.random() < 0.55:
            return Call("enqueue", key, caller.number)
        return Call("dequeue", key)
