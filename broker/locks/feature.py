"""Locks of ordered consumers."""

from typing import Final

from broker.feature import Feature
from broker.locks.commands import LOCK_QUEUES
from broker.locks.processor import LockProcessor
from broker.locks.state import LOCKS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def _service(parts: Parts) -> Service:
    processor = LockProcessor(parts.state, parts.log, parts.config.limits, parts.clock)
    return Service(
        handlers={
            RequestCode.LOCK_BATCH_MQ: Handler(processor.lock),
            RequestCode.UNLOCK_BATCH_MQ: Handler(processor.unlock),
        }
    )


FEATURE: Final = Feature(commands=(LOCK_QUEUES,), parts=(LOCKS,), service=_service)
