"""Resets of consumer groups."""

from broker.resets.processor import ResetProcessor
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import on_group
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = ResetProcessor(parts)
    return Service(
        handlers={
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(
                processor.reset,
                on_group(Action.UPDATE, field="group"),
                confirmed=True,
                is_audited=True,
            )
        }
    )
