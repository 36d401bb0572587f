"""Moves of consumer groups."""

from broker.resets.processor import ResetProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    processor = ResetProcessor(
        parts.state,
        parts.log,
        parts[MESSAGE_READER],
        parts[SETTINGS],
        parts.config.group,
        parts.wall_clock_ms,
    )
    return Service(
        handlers={
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(processor.reset, confirmed=True)
        }
    )
