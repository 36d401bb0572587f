"""Queues that brokers assign, and request modes."""

from typing import Final

from broker.assignment.commands import SET_MODE
from broker.assignment.processor import AssignmentProcessor
from broker.assignment.state import MODES
from broker.consumers.members import CONSUMERS
from broker.feature import Feature
from broker.serving.parts import Parts
from broker.serving.routes import ROUTES
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def _service(parts: Parts) -> Service:
    processor = AssignmentProcessor(parts.state, parts.log, parts[CONSUMERS], parts[ROUTES])
    return Service(
        handlers={
            RequestCode.QUERY_ASSIGNMENT: Handler(processor.query),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Handler(processor.set_mode),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Handler(processor.all_modes),
        }
    )


FEATURE: Final = Feature(commands=(SET_MODE,), parts=(MODES,), service=_service)
