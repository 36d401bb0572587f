"""Inspection of consumer groups."""

from broker.consumers.members import CONSUMERS
from broker.inspection.consumer_status import ConsumerStatus
from broker.inspection.forwarding import Forwarding
from broker.inspection.processor import InspectionProcessor
from broker.inspection.queue_units import QueueUnits
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    forwarding = Forwarding(parts)
    processor = InspectionProcessor(parts)
    units = QueueUnits(parts)
    status = ConsumerStatus(parts[CONSUMERS])
    return Service(
        handlers={
            RequestCode.GET_CONSUMER_RUNNING_INFO: Handler(forwarding.running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Handler(forwarding.consume_directly),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Handler(
                processor.groups_of_topic, confirmed=True
            ),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: Handler(
                processor.topics_of_group, confirmed=True
            ),
            RequestCode.QUERY_CONSUME_TIME_SPAN: Handler(processor.time_spans, confirmed=True),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Handler(processor.subscription),
            RequestCode.QUERY_CORRECTION_OFFSET: Handler(
                processor.correction_offsets, confirmed=True
            ),
            RequestCode.QUERY_CONSUME_QUEUE: Handler(units.show, confirmed=True),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Handler(status.gather),
            RequestCode.CLONE_GROUP_OFFSET: Handler(processor.clone_offsets, confirmed=True),
        }
    )
