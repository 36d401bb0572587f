"""Retention."""

from broker.retention.keeper import LOG_KEEPER
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import OPERATE
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    keeper = parts[LOG_KEEPER]
    return Service(
        handlers={
            RequestCode.TRIGGER_DELETE_FILES: Handler(
                keeper.drop_expired, OPERATE, is_audited=True
            ),
            RequestCode.DELETE_EXPIRED_COMMITLOG: Handler(
                keeper.drop_expired, OPERATE, is_audited=True
            ),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Handler(
                keeper.clean_queues, OPERATE, any_role=True, is_audited=True
            ),
        },
        tasks=(keeper.run,),
    )
