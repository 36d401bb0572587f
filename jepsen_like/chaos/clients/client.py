"""One client: makes calls one after another, and has each noted in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio

from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.clients.ways import Way
from jepsen_like.chaos.outcomes import Outcome, failed, ok
from jepsen_like.chaos.service import Call, Caller, CallFailed, Described
from jepsen_like.history.operation import EventType
from jepsen_like.simulation.chance import Chance

# After a call that was not ok: a member that refuses at once must not be asked in a busy loop.
PAUSE_S = 0.05
# Attempts at a call of the wanted kind, before the client takes whatever the service makes.
ATTEMPTS_MAX = 50


class Client:
    """A client of a run.

    Args:
        number: its first process number.
        step: how much the number of its process grows when an outcome was unknown: a process whose
            call may still happen makes no further one.
        way: how it reaches the group.
        wants: whether it makes a call; None takes all calls.
    """

    def __init__(
        self,
        service: Described,
        recorder: Recorder,
        chance: Chance,
        numbers: Iterator[int],
        number: int,
        step: int,
        way: Way,
        calls_a_second: float,
        wants: Callable[[Call], bool],
    ) -> None:
        self._service = service
        self._recorder = recorder
        self._chance = chance
        self._numbers = numbers
        self._process = number
        self._step = step
        self._way = way
        self._calls_a_second = calls_a_second
        self._wants = wants

    async def run(self, ends: Callable[[], bool]) -> None:
        """Make calls until `ends` says so; then finish the last one."""
        try:
            while not ends():
                call = self._next_call()
                if call is None:
                    return
                outcome = await self.make(call)
                if outcome.type is not EventType.OK:
                    await trio.sleep(PAUSE_S)
                await trio.sleep(self._chance.expovariate(self._calls_a_second))
        finally:
            await self._way.close()

    def _next_call(self) -> Call | None:
        """A call of the kind that this client makes, or None if the service makes no such calls."""
        for _ in range(ATTEMPTS_MAX):
            call = self._service.service.generate(
                Caller(self._chance, self._process, next(self._numbers))
            )
            if self._wants(call):
                return call
        return None

    async def make(self, call: Call) -> Outcome:
        """Make one call and note it."""
        self._recorder.note(self._process, EventType.INVOKE, call, call.value, self._way.member)
        outcome = self._judged(call, await self._way.carry_out(call))
        told = outcome.value if outcome.type is EventType.OK else call.value
        self._recorder.note(
            self._process, outcome.type, call, told, self._way.member, outcome.error
        )
        if outcome.type is EventType.INFO:
            self._process += self._step
        return outcome

    def _judged(self, call: Call, outcome: Outcome) -> Outcome:
        """What the history has for an answer. A read is answered as the history has it."""
        if outcome.type is not EventType.OK or call.is_read:
            return outcome
        try:
            return ok(self._service.answered(call, outcome.value))
        except CallFailed as error:
            return failed(str(error))
