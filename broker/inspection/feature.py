"""Inspection of consumer groups."""

from broker.consumers.members import CONSUMERS
from broker.inspection.consumer_status import ConsumerStatus
from broker.inspection.forwarding import Forwarding
from broker.inspection.processor import InspectionProcessor
from broker.inspection.queue_units import QueueUnits
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, all_of, on_group, on_topic
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    forwarding = Forwarding(parts)
    processor = InspectionProcessor(parts)
    units = QueueUnits(parts)
    status = ConsumerStatus(parts[CONSUMERS])
    return Service(
        handlers={
            RequestCode.GET_CONSUMER_RUNNING_INFO: Handler(
                forwarding.running_info, on_group(Action.GET)
            ),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Handler(
                forwarding.consume_directly, forwarding.direct_needs, is_audited=True
            ),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Handler(
                processor.groups_of_topic, on_topic(Action.GET), confirmed=True
            ),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: Handler(
                processor.topics_of_group,
                on_group(Action.GET, Action.SUB, field="group"),
                confirmed=True,
            ),
            RequestCode.QUERY_CONSUME_TIME_SPAN: Handler(
                processor.time_spans,
                all_of(on_group(Action.GET, field="group"), on_topic(Action.GET, Action.SUB)),
                confirmed=True,
            ),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Handler(
                processor.subscription, on_group(Action.GET, Action.SUB, field="group")
            ),
            RequestCode.QUERY_CORRECTION_OFFSET: Handler(
                processor.correction_offsets, LOOK, confirmed=True
            ),
            RequestCode.QUERY_CONSUME_QUEUE: Handler(units.show, units.needs, confirmed=True),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Handler(
                status.gather, on_group(Action.GET, field="group")
            ),
            RequestCode.CLONE_GROUP_OFFSET: Handler(
                processor.clone_offsets,
                all_of(
                    on_group(Action.GET, field="srcGroup"),
                    on_group(Action.UPDATE, field="destGroup"),
                ),
                confirmed=True,
                is_audited=True,
            ),
        }
    )
