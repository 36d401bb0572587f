"""The notes of producers and consumers of a run on their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import trio

from dledger_mq.errors import MessagingError, OutcomeUnknown, SendFailed, TransactionRefused
from jepsen_like.chaos.brokers.begun import Begun, is_delivery
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.service import Call, CallFailed
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import Value
from remoting.wire.errors import RemotingError

# Errors of calls that certainly did nothing.
_CERTAIN = (SendFailed, TransactionRefused, CallFailed)


class Notes:
    """The history, and which messages were acknowledged and received.

    Args:
        recorder: writes the history.
        step: how much the number of a process grows when an outcome was unknown.
        part: of a workload of several parts: the history then has `(part, key)` for each key.

    Attributes:
        onlooker: the process that makes the last reads.
    """

    def __init__(self, recorder: Recorder, step: int, part: str | None = None) -> None:
        self._part = part
        self._recorder = recorder
        self._step = step
        self.onlooker = step - 1
        self.due: set[tuple[Value, int]] = set()
        self.received: set[tuple[Value, int]] = set()
        self._calls = count(1)

    def of_part(self, name: str) -> Notes:
        """Return notes in the same history, of one part of a workload."""
        part = Notes(self._recorder, self._step, name)
        part.due, part.received, part._calls = self.due, self.received, self._calls
        return part

    def _named(self, key: Value) -> Value:
        return key if self._part is None else (self._part, key)

    async def call(
        self,
        process: int,
        function: str,
        key: Value,
        value: object,
        make: Callable[[], Awaitable[object]],
    ) -> tuple[EventType, int]:
        """Make a call and note it; return its outcome, and the process that goes on.

        `make` returns False for a call that a broker has not confirmed.
        """
        return await self._noted(
            process, Call(function, self._named(key), value), make, lambda _: value
        )

    async def ask(
        self, process: int, function: str, key: Value, make: Callable[[], Awaitable[Value]]
    ) -> tuple[EventType, int]:
        """Make a call that returns a value, and note it, as `call` does."""
        return await self._noted(
            process, Call(function, self._named(key)), make, lambda result: result
        )

    async def take(
        self, process: int, key: Value, value: object, make: Callable[[], Awaitable[Value]]
    ) -> EventType:
        """Make a call that returns messages, `{id, ...}` each, and note it as a delivery.

        If it is cancelled, what it was given comes again.
        """
        call = Call("receive", self._named(key), value)
        own = self.beside(process)

        def told_of(result: Any) -> object:
            self.received.update((self._named(key), one["id"]) for one in result)
            return result

        try:
            outcome, _ = await self._noted(own, call, make, told_of)
        except trio.Cancelled:
            self._recorder.note(own, EventType.FAIL, call, None, None, "its client has left")
            raise
        return outcome

    def beside(self, process: int) -> int:
        """Return a process of the same client that makes one call beside others."""
        return process + self._step * next(self._calls)

    async def _noted(
        self,
        process: int,
        call: Call,
        make: Callable[[], Awaitable[Any]],
        told_of: Callable[[Any], object],
    ) -> tuple[EventType, int]:
        self._recorder.note(process, EventType.INVOKE, call, call.value, None)
        outcome, error, result = EventType.OK, None, None
        try:
            result = await make()
            if result is False:
                outcome, error = EventType.INFO, "the broker has not confirmed it"
        except OutcomeUnknown as unknown:
            outcome, error = EventType.INFO, str(unknown)
        except _CERTAIN as failure:
            outcome, error = EventType.FAIL, str(failure)
        except (MessagingError, RemotingError) as other:
            outcome, error = EventType.INFO, f"{type(other).__name__}: {other}"
        told = told_of(result) if outcome is EventType.OK else None
        self._recorder.note(process, outcome, call, told, None, error)
        return outcome, process + self._step * (outcome is EventType.INFO)

    def leave_unknown(self, process: int, function: str, key: Value, value: object) -> int:
        """Note a call without waiting for its outcome; return the process that goes on."""
        call = Call(function, self._named(key), value)
        self._recorder.note(process, EventType.INVOKE, call, value, None)
        self._recorder.note(process, EventType.INFO, call, None, None, "left open")
        return process + self._step

    def go_on(self, begun: Begun) -> None:
        """Go on after clients that were killed: end the calls that they left open.

        Their outcome is not known. A delivery did nothing: it was not confirmed to the broker, so
        the message comes again.
        """
        for one in begun.open:
            outcome = EventType.FAIL if is_delivery(one) else EventType.INFO
            call = Call(one.function, one.key)
            self._recorder.note(one.process, outcome, call, None, None, "its client was killed")
        self.due |= begun.due
        self.received |= begun.received

    def expect(self, key: Value, number: int) -> None:
        """Note that a message has to be received."""
        self.due.add((self._named(key), number))

    def expect_nothing(self, key: Value) -> None:
        """Note that no message of a key has to be received any more: they may be deleted."""
        self.due -= {one for one in self.due if one[0] == self._named(key)}

    def receive(self, process: int, key: Value, numbers: Sequence[int]) -> None:
        """Note a delivery. It takes no time: it is noted when it happens."""
        self.received.update((self._named(key), number) for number in numbers)
        self._deliver(process, "receive", key, numbers)

    def drain(self, process: int, key: Value) -> None:
        """Note that nothing is left."""
        self._deliver(process, "drain", key, ())

    def _deliver(self, process: int, function: str, key: Value, numbers: Sequence[int]) -> None:
        call = Call(function, self._named(key))
        self._recorder.note(process, EventType.INVOKE, call, None, None)
        self._recorder.note(process, EventType.OK, call, list(numbers), None)

    @property
    def all_received(self) -> bool:
        """Whether all messages that have to be received were."""
        return self.due <= self.received

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._recorder.counts)
