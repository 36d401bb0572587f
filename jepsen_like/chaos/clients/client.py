"""One client: makes calls one after another, and has each noted in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.clients.ways import Way
from jepsen_like.chaos.outcomes import Outcome, failed, ok
from jepsen_like.chaos.service import Call, Caller, CallFailed, Described
from jepsen_like.history.operation import EventType

# After a call that was not ok: a member that refuses at once must not be asked in a busy loop.
PAUSE_S = 0.05
# Attempts at a call of the wanted kind, before the client gives up.
ATTEMPTS_MAX = 50


@dataclass
class Client:
    """A client of a run.

    Args:
        process: its number in the history, at first.
        step: how much the number of its process grows when an outcome was unknown: a process whose
            call may still happen makes no further one.
        way: how it reaches the group.
        wants: returns whether it makes a call.
    """

    service: Described
    recorder: Recorder
    chance: Chance
    numbers: Iterator[int]
    process: int
    step: int
    way: Way
    calls_a_second: float
    wants: Callable[[Call], bool]

    async def run(self, ends: Callable[[], bool]) -> None:
        """Make calls until `ends` returns True; then finish the last one."""
        try:
            while not ends():
                call = self._next_call()
                if call is None:
                    return
                outcome = await self.make(call)
                if outcome.type is not EventType.OK:
                    await trio.sleep(PAUSE_S)
                await trio.sleep(self.chance.expovariate(self.calls_a_second))
        finally:
            await self.way.close()

    def _next_call(self) -> Call | None:
        """Return a call of the kind that this client makes; None if the service makes no such
        calls.
        """
        for _ in range(ATTEMPTS_MAX):
            call = self.service.service.generate(
                Caller(self.chance, self.process, next(self.numbers))
            )
            if self.wants(call):
                return call
        return None

    async def make(self, call: Call) -> Outcome:
        self.recorder.note(self.process, EventType.INVOKE, call, call.value, self.way.member)
        outcome = self._judged(call, await self.way.carry_out(call))
        told = outcome.value if outcome.type is EventType.OK else call.value
        self.recorder.note(self.process, outcome.type, call, told, self.way.member, outcome.error)
        if outcome.type is EventType.INFO:
            self.process += self.step
        return outcome

    def _judged(self, call: Call, outcome: Outcome) -> Outcome:
        """Return the outcome of an answer for the history. A read needs no translation."""
        if outcome.type is not EventType.OK or call.is_read:
            return outcome
        try:
            return ok(self.service.answered(call, outcome.value))
        except CallFailed as error:
            return failed(str(error))
