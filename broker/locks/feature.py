"""Locks of ordered consumers."""

from broker.locks.clock import LOCK_CLOCK
from broker.locks.processor import LockProcessor
from broker.serving.needs import any_user
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = LockProcessor(parts)
    return Service(
        handlers={
            RequestCode.LOCK_BATCH_MQ: Handler(processor.lock, any_user),
            RequestCode.UNLOCK_BATCH_MQ: Handler(processor.unlock, any_user),
        },
        begin_term=parts[LOCK_CLOCK].begin_term,
    )
