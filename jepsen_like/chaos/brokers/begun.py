"""What clients that were killed left in the history, for those that go on in their place. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value

# What consumers are told.
DELIVERIES: Final = ("receive", "drain")

Message = tuple[Value, int]


class Begun(NamedTuple):
    """What was begun.

    Attributes:
        open: calls without an end.
        processes: who goes on in the place of each client that has made calls: another process,
            as after a call of unknown outcome. Consumers, which are told and call nothing, go on
            as they are.
        due, received: messages, each with its key.
    """

    open: Sequence[Operation]
    processes: Mapping[int, int]
    due: frozenset[Message]
    received: frozenset[Message]


def begun_of(operations: Sequence[Operation], step: int) -> Begun:
    """What is in a history.

    Args:
        operations: all, in the order of their calls.
        step: processes whose numbers differ by a multiple of it are the same client.
    """
    still_open = [one for one in operations if one.ended_line is None]
    processes: dict[int, int] = {}
    for one in operations:
        if not is_delivery(one):
            client = one.process % step
            processes[client] = max(processes.get(client, 0), one.process + step)
    prepared = {(one.key, one.value) for one in operations if one.function == "prepare"}
    due = {
        (one.key, _number(one.value))
        for one in operations
        if one.ok
        and (
            one.function == "send"
            or (one.function == "commit" and (one.key, one.value) in prepared)
        )
    }
    received: set[Message] = set()
    for one in operations:
        if one.ok and is_delivery(one) and isinstance(one.result, tuple):
            received.update((one.key, _number(each)) for each in one.result)
    return Begun(still_open, processes, frozenset(due), frozenset(received))


def is_delivery(operation: Operation) -> bool:
    """Whether a consumer is told something, and calls nothing."""
    return operation.function in DELIVERIES


def _number(value: Value) -> int:
    number = value["id"] if isinstance(value, Map) else value
    assert isinstance(number, int)
    return number
