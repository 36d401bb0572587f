"""Resets of consumer groups."""

from broker.resets.processor import ResetProcessor
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import all_of, on_group, on_topic
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = ResetProcessor(parts)
    return Service(
        handlers={
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(
                processor.reset,
                # The answer tells offsets of the topic.
                all_of(
                    on_group(Action.UPDATE, field="group"),
                    on_topic(Action.SUB, Action.GET, Action.UPDATE),
                ),
                confirmed=True,
                is_audited=True,
            )
        }
    )
