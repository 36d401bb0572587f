"""Members of consumer groups."""

from broker.consumers.members import CONSUMERS
from broker.consumers.processor import ClientProcessor
from broker.serving.needs import Action, any_user
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import on_group
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    consumers = parts[CONSUMERS]
    processor = ClientProcessor(parts)
    return Service(
        handlers={
            RequestCode.HEART_BEAT: Handler(processor.heartbeat, any_user),
            RequestCode.UNREGISTER_CLIENT: Handler(
                processor.unregister, processor.unregister_needs
            ),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: Handler(
                processor.consumer_list, on_group(Action.SUB, Action.GET)
            ),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: Handler(
                processor.consumer_connections, on_group(Action.GET)
            ),
        },
        end_term=lambda _refusal: processor.end_term(),
        tick=processor.tick,
        look_over=processor.expire,
        dropped=processor.drop,
        figures=lambda: {"dledgerGroupsThatDiffer": str(len(consumers.differing))},
    )
