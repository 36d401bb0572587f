"""Assigned queues and request modes."""

from broker.assignment.processor import AssignmentProcessor
from broker.serving.needs import any_user
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, OPERATE
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = AssignmentProcessor(parts)
    return Service(
        handlers={
            RequestCode.QUERY_ASSIGNMENT: Handler(processor.query, any_user),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Handler(
                processor.set_mode, OPERATE, is_audited=True
            ),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Handler(processor.all_modes, LOOK),
        }
    )
