"""The task that lets a broker deliver what is due."""

import trio

from broker.delay.deliveries import Deliveries


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
            with trio.move_on_after(self._deliveries.deliver()):
                await self._woken.wait()
            await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        self._woken.set()
