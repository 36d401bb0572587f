"""Delayed messages, and the task that delivers them."""

from typing import Final

import trio

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.delay.deliveries import DELIVERIES, Deliveries
from broker.delay.figures import DelayFigures
from broker.delay.recall import RecallProcessor
from broker.log.one_by_one import failure
from broker.retention.kept_back import KEPT_BACK
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, on_topic
from dledger import DLedgerError
from dledger.wake_up import WakeUp
from remoting.wire.codes import RequestCode

# The pause after a failure, which may be over by then.
_AFTER_FAILURE_S: Final = 10.0


class DeliveryTask:
    """Calls `Deliveries.deliver` whenever it asks to be called."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._woken = WakeUp()
        deliveries.on_sooner = self._woken.set

    async def run(self) -> None:
        while True:
            with trio.move_on_after(self._deliver()):
                await self._woken.wait()
            await trio.lowlevel.checkpoint()

    def _deliver(self) -> float:
        """Call `Deliveries.deliver`; a defect does not end the member, and is met again."""
        try:
            return self._deliveries.deliver()
        except DLedgerError:
            raise
        except Exception as error:
            failure("delivering what is due", error)
            return _AFTER_FAILURE_S


def service(parts: Parts) -> Service:
    deliveries, figures, processor = parts[DELIVERIES], DelayFigures(parts), RecallProcessor(parts)
    parts[SPECIAL_SENDS].add(parts[DELAYED_SENDS])
    parts[KEPT_BACK].add(deliveries.move_before)
    return Service(
        handlers={
            RequestCode.RECALL_MESSAGE: Handler(processor.recall, on_topic(Action.PUB)),
            RequestCode.GET_ALL_DELAY_OFFSET: Handler(figures.level_offsets, LOOK, confirmed=True),
            RequestCode.GET_TIMER_CHECK_POINT: Handler(
                figures.timer_checkpoint, LOOK, confirmed=True
            ),
            RequestCode.GET_TIMER_METRICS: Handler(figures.timer_metrics, LOOK, confirmed=True),
        },
        begin_term=deliveries.begin_term,
        applied=deliveries.applied,
        look_over=figures.sample,
        figures=figures.figures,
        tasks=(DeliveryTask(deliveries).run,),
    )
