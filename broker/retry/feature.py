"""Messages that consumers send back."""

from broker.retry.processor import RetryProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = RetryProcessor(parts)
    return Service(
        handlers={RequestCode.CONSUMER_SEND_MSG_BACK: Handler(processor.send_back, processor.needs)}
    )
