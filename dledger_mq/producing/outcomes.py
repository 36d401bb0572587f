"""The outcomes of messages, as their senders wait for them."""

from functools import partial

import trio

from dledger_mq.sending.sending import SendCallback, SendOutcome


class OneOutcome:
    """Waits for the outcome of one message. Calling it tells the outcome."""

    __slots__ = ("_task", "_told")

    def __init__(self) -> None:
        self._told: SendOutcome | None = None
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, outcome: SendOutcome) -> None:
        """Note the outcome, and wake the task that waits for it."""
        self._told = outcome
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def wait(self) -> SendOutcome:
        """Wait until the outcome is told. An event would cost each message twice as much."""
        if self._told is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        else:
            await trio.lowlevel.checkpoint()
        assert self._told is not None
        return self._told

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Outcomes:
    """Collects the outcomes of messages that are sent together, in the order of the messages."""

    def __init__(self) -> None:
        self._told: dict[int, SendOutcome] = {}
        self._count = 0
        self._all_told = trio.lowlevel.ParkingLot()

    def next(self) -> SendCallback:
        """What the next message calls with its outcome."""
        number = self._count
        self._count += 1
        return partial(self._settle, number)

    async def all(self) -> list[SendOutcome]:
        """Wait for the outcomes of all messages so far."""
        while len(self._told) < self._count:
            await self._all_told.park()
        return [self._told[number] for number in range(self._count)]

    def _settle(self, number: int, outcome: SendOutcome) -> None:
        self._told[number] = outcome
        if len(self._told) == self._count:
            self._all_told.unpark_all()
