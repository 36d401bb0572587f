"""The task that lets a broker deliver what is due."""

from typing import Final

import trio

from broker.delay.deliveries import Deliveries
from broker.log.one_by_one import failure

# After a failure.
_PAUSE_SECONDS: Final = 1.0


class DeliveryTask:
    """Calls `Deliveries.deliver` as often as it wants to be called."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._woken = trio.Event()
        deliveries.on_sooner = self._wake

    async def run(self) -> None:
        """Deliver, for ever."""
        while True:
            self._woken = trio.Event()
            try:
                pause = self._deliveries.deliver()
            except Exception as error:
                failure("delivering delayed messages", error)
                pause = _PAUSE_SECONDS
            with trio.move_on_after(pause):
                await self._woken.wait()
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        self._woken.set()
