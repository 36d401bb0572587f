"""Delayed messages."""

from collections.abc import Mapping

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.delay.deliveries import DELIVERIES
from broker.delay.delivery_task import DeliveryTask
from broker.delay.figures import DelayFigures
from broker.delay.recall import RecallProcessor
from broker.delay.state import DELAYS
from broker.delay.timer_rates import TimerRates
from broker.retention.kept_back import KEPT_BACK
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    delays, sends, deliveries = parts.state[DELAYS], parts[DELAYED_SENDS], parts[DELIVERIES]
    parts[SPECIAL_SENDS].add(sends)
    parts[KEPT_BACK].add(deliveries.move_before)
    told = DelayFigures(parts)
    processor = RecallProcessor(parts)

    rates = TimerRates(delays, parts.clock)

    def figures() -> Mapping[str, str]:
        came, went = rates.rates()
        return {
            **told.figures(),
            "timerDequeueTps": f"{went:.2f}",
            "timerEnqueueTps": f"{came:.2f}",
            "dledgerDelayedDelivered": str(delays.delivered),
            "dledgerDelayedDropped": str(delays.dropped),
            "dledgerDelayedWaiting": str(len(delays.waiting)),
        }

    return Service(
        handlers={
            RequestCode.RECALL_MESSAGE: Handler(processor.recall),
            RequestCode.GET_ALL_DELAY_OFFSET: Handler(told.level_offsets, confirmed=True),
            RequestCode.GET_TIMER_CHECK_POINT: Handler(told.timer_checkpoint, confirmed=True),
            RequestCode.GET_TIMER_METRICS: Handler(told.timer_metrics, confirmed=True),
        },
        begin_term=deliveries.begin_term,
        applied=lambda _folded: deliveries.applied(),
        look_over=rates.sample,
        figures=figures,
        tasks=(DeliveryTask(deliveries).run,),
    )
