"""Members of producer groups. `broker.consumers` registers them by their heartbeats."""

from broker.producers.members import PRODUCERS
from broker.producers.processor import ProducerProcessor
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, on_group
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    producers = parts[PRODUCERS]
    processor = ProducerProcessor(parts)
    return Service(
        handlers={
            RequestCode.GET_PRODUCER_CONNECTION_LIST: Handler(
                processor.connections, on_group(Action.GET, field="producerGroup")
            ),
            RequestCode.GET_ALL_PRODUCER_INFO: Handler(processor.all_producers, LOOK),
        },
        end_term=lambda _refusal: producers.clear(),
        look_over=processor.expire,
        dropped=processor.drop,
    )
