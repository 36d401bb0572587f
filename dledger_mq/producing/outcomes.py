"""Waiting for the outcomes of messages."""

from collections.abc import Sequence
from functools import partial

import trio

from dledger_mq.errors import SomeFailed
from dledger_mq.send_result import SendResult
from dledger_mq.sending.sending import SendCallback, SendOutcome


class OneOutcome:
    """The outcome of one message, which is set by calling the object."""

    __slots__ = ("_outcome", "_task")

    def __init__(self) -> None:
        self._outcome: SendOutcome | None = None
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, outcome: SendOutcome) -> None:
        """Set the outcome, and wake the task that waits for it."""
        self._outcome = outcome
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def wait(self) -> SendOutcome:
        """Wait for the outcome. A trio.Event would cost twice as much for each message."""
        if self._outcome is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        else:
            await trio.lowlevel.checkpoint()
        assert self._outcome is not None
        return self._outcome

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Outcomes:
    """The outcomes of messages that are sent together, in the order of the messages."""

    def __init__(self) -> None:
        self._outcomes: dict[int, SendOutcome] = {}
        self._count = 0
        self._all_known = trio.lowlevel.ParkingLot()

    def next(self) -> SendCallback:
        number = self._count
        self._count += 1
        return partial(self._settle, number)

    async def all(self) -> list[SendOutcome]:
        while len(self._outcomes) < self._count:
            await self._all_known.park()
        return [self._outcomes[number] for number in range(self._count)]

    def _settle(self, number: int, outcome: SendOutcome) -> None:
        self._outcomes[number] = outcome
        if len(self._outcomes) == self._count:
            self._all_known.unpark_all()


def all_results(outcomes: Sequence[SendOutcome]) -> list[SendResult]:
    """Return the outcomes if all are results. Raises SomeFailed."""
    results = [one for one in outcomes if isinstance(one, SendResult)]
    if len(results) < len(outcomes):
        raise SomeFailed(outcomes)
    return results
