"""The outcomes of messages that are sent together, in the order of the messages."""

from functools import partial

import trio

from dledger_mq.sending import SendCallback, SendOutcome


class Outcomes:
    """Collects the outcome of each message."""

    def __init__(self) -> None:
        self._told: dict[int, SendOutcome] = {}
        self._count = 0
        self._all_told: trio.Event | None = None

    def next(self) -> SendCallback:
        """What the next message calls with its outcome."""
        number = self._count
        self._count += 1
        return partial(self._settle, number)

    async def all(self) -> list[SendOutcome]:
        """Wait for the outcomes of all messages so far."""
        if len(self._told) < self._count:
            self._all_told = trio.Event()
            await self._all_told.wait()
        return [self._told[number] for number in range(self._count)]

    def _settle(self, number: int, outcome: SendOutcome) -> None:
        self._told[number] = outcome
        if self._all_told is not None and len(self._told) == self._count:
            self._all_told.set()
