"""What killed clients left in the history, for the clients that replace them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value

# The functions of deliveries to consumers.
DELIVERIES: Final = ("receive", "drain")

Message = tuple[Value, int]


class Begun(NamedTuple):
    """The beginnings that a history shows.

    Attributes:
        open: calls without an end.
        processes: by client that has made calls, the process that replaces it: another one,
            as after a call of unknown outcome. Consumers, which make no calls, keep theirs.
        due, received: messages, each with its key.
    """

    open: Sequence[Operation]
    processes: Mapping[int, int]
    due: frozenset[Message]
    received: frozenset[Message]


def begun_of(operations: Sequence[Operation], step: int) -> Begun:
    """Return the beginnings that a history shows.

    Processes whose numbers differ by a multiple of `step` are the same client.
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
    """Return whether an operation is a delivery to a consumer, and not a call."""
    return operation.function in DELIVERIES


def _number(value: Value) -> int:
    number = value["id"] if isinstance(value, Map) else value
    assert isinstance(number, int)
    return number
