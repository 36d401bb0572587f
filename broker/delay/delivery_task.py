"""The task that lets a broker deliver what is due."""

from typing import Final

import trio

from broker.delay.deliveries import Deliveries
from broker.serving.one_of_many import one_of_many

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
            pause = _PAUSE_SECONDS
            with one_of_many("delivering", "delayed messages"):
                pause = self._deliveries.deliver()
            with trio.move_on_after(pause):
                await self._woken.wait()
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        self._woken.set()
