"""Joins the events of a history to operations, and refuses contradictory events."""

from __future__ import annotations

from jepsen_like.history.errors import BadLine
from jepsen_like.history.operation import Event, EventType, Operation
from jepsen_like.history.value import shown

# About 1 GB of memory once they are read.
OPERATIONS_MAX = 2_000_000


class Pairing:
    """The operations of the events so far, in the order of their calls.

    If `timed`, the events carry times of a clock, which may not go back.
    """

    def __init__(self, *, timed: bool = True, operations_max: int = OPERATIONS_MAX) -> None:
        self.operations: list[Operation] = []
        self._timed = timed
        self._operations_max = operations_max
        self._running: dict[int, Operation] = {}
        self._now_ns = 0

    def add(self, event: Event) -> None:
        """Take the next event.

        Raises BadLine if its process calls while another call runs, if it ends a call that was not
        begun, or if time goes back.
        """
        if self._timed:
            if event.time_ns < self._now_ns:
                raise BadLine(
                    f"time goes back from {self._now_ns} to {event.time_ns} ns: "
                    "record one monotonic clock, and write events in its order"
                )
            self._now_ns = event.time_ns
        if isinstance(event.process, str):
            _check_note(event)
        elif event.type is EventType.INVOKE:
            self._begin(event, event.process)
        else:
            self._end(event, event.process)

    def _begin(self, event: Event, process: int) -> None:
        before = self._running.get(process)
        if before is not None:
            raise BadLine(
                f"process {process} calls {event.function} while its {before.function} of line "
                f"{before.invoked_line} is running: give each client a process of its own"
            )
        if len(self.operations) >= self._operations_max:
            raise BadLine(
                f"more than {self._operations_max} operations: check a history of fewer, "
                "such as those of some keys"
            )
        operation = Operation(
            process,
            event.function,
            event.key,
            event.value,
            event.line,
            event.time_ns,
            event.member,
        )
        self._running[process] = operation
        self.operations.append(operation)

    def _end(self, event: Event, process: int) -> None:
        operation = self._running.get(process)
        if operation is None:
            raise BadLine(
                f"{event.type} of process {process}, which has called nothing: "
                "the line of its invoke is missing"
            )
        if event.function != operation.function:
            raise BadLine(
                f"process {process} ends {event.function}, but it called {operation.function} "
                f"in line {operation.invoked_line}"
            )
        if event.key is not None and event.key != operation.key:
            raise BadLine(
                f"process {process} ends {event.function} of key {shown(event.key, 40)}, but it "
                f"called it of {shown(operation.key, 40)} in line {operation.invoked_line}"
            )
        del self._running[process]
        operation.outcome = event.type
        operation.result = event.value
        operation.ended_line = event.line
        operation.ended_ns = event.time_ns
        operation.error = event.error
        if event.member is not None:
            operation.member = event.member


def _check_note(event: Event) -> None:
    """Check an event of an observer, such as the nemesis: it takes notes and calls nothing."""
    if event.type is not EventType.INFO:
        raise BadLine(
            f"{event.type} of process {shown(event.process, 40)}: a client's process is a number; "
            "a process with a name only notes what it did, with events of type info"
        )
