"""Resets of consumer groups."""

from broker.resets.processor import ResetProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = ResetProcessor(parts)
    return Service(
        handlers={
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(
                processor.reset,
                processor.needs,
                confirmed=True,
                is_audited=True,
            )
        }
    )
