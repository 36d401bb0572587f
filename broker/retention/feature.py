"""Retention."""

from broker.retention.keeper import LOG_KEEPER
from broker.retention.processor import RetentionProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    keeper = parts[LOG_KEEPER]
    processor = RetentionProcessor(keeper.look_soon)
    return Service(
        handlers={
            RequestCode.TRIGGER_DELETE_FILES: Handler(processor.drop_expired),
            RequestCode.DELETE_EXPIRED_COMMITLOG: Handler(processor.drop_expired),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Handler(processor.clean_queues, any_role=True),
        },
        tasks=(keeper.run,),
    )
