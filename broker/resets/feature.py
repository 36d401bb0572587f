"""Moves of consumer groups."""

from typing import Final

from broker.feature import Feature
from broker.resets.commands import END_RESET, RESET_OFFSETS
from broker.resets.processor import ResetProcessor
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from remoting.wire.codes import RequestCode


def _service(parts: Parts) -> Service:
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


FEATURE: Final = Feature(commands=(RESET_OFFSETS, END_RESET), service=_service)
