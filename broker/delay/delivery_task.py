"""The task that lets a broker deliver what is due."""

from typing import Final

import trio

from broker.delay.deliveries import Deliveries
from broker.log.one_by_one import failure
from dledger import DLedgerError
from dledger.wake_up import WakeUp

# After a failure; it may be over by then.
_AFTER_FAILURE_SECONDS: Final = 10.0


class DeliveryTask:
    """Calls `Deliveries.deliver` as often as it wants to be called."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._woken = WakeUp()
        deliveries.on_sooner = self._wake

    async def run(self) -> None:
        """Deliver, for ever."""
        while True:
            with trio.move_on_after(self._deliver()):
                await self._woken.wait()
            await trio.lowlevel.checkpoint()

    def _deliver(self) -> float:
        """As `Deliveries.deliver`; a defect does not end the member, and is met again."""
        try:
            return self._deliveries.deliver()
        except DLedgerError:
            raise
        except Exception as error:
            failure("delivering what is due", error)
            return _AFTER_FAILURE_SECONDS

    def _wake(self) -> None:
        self._woken.set()
