"""Lite topics."""

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.lite.acks import LiteAcks
from broker.lite.keeper import LiteKeeper
from broker.lite.popping import LITE_POPPING
from broker.lite.processor import LiteProcessor
from broker.lite.sends import LiteSends
from broker.lite.state import LITE
from broker.lite.subscribing import Subscribing
from broker.pop.detours import DETOURS
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.needs import Action, any_user
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import CONSUMES, LOOK, OPERATE, on_group, on_topic
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    lite, popping, acks = parts.state[LITE], parts[LITE_POPPING], LiteAcks(parts)
    subscribing, keeper = Subscribing(parts), LiteKeeper(parts)
    processor = LiteProcessor(parts, subscribing)
    parts[ACCESS_GUARD].watchers.append(popping.ask_all_again)
    parts[SPECIAL_SENDS].add(LiteSends(parts))
    detours = parts[DETOURS]
    detours.ack, detours.hide = acks.ack, acks.hide

    def end_term(refusal: RequestRefused) -> None:
        popping.end_term()
        acks.gathered.refuse_waiting(refusal)

    def flush() -> None:
        acks.gathered.flush()
        popping.flush()

    def look_over() -> None:
        subscribing.look_over()
        keeper.look_over()

    def figures() -> dict[str, str]:
        return {
            "dledgerLiteTopics": str(lite.topic_count),
            "dledgerLiteMessages": str(lite.message_count),
            "dledgerLiteInFlight": str(lite.in_flight_count),
            "dledgerLitePopsWaiting": str(len(popping)),
        }

    get_parent = on_topic(Action.GET, field="parentTopic")
    return Service(
        handlers={
            RequestCode.POP_LITE_MESSAGE: Handler(popping.pop, CONSUMES, while_ending=True),
            RequestCode.LITE_SUBSCRIPTION_CTL: Handler(subscribing.change, any_user),
            RequestCode.ACK_LITE_MESSAGE: Handler(acks.ack, CONSUMES),
            RequestCode.GET_BROKER_LITE_INFO: Handler(processor.broker, LOOK),
            RequestCode.GET_PARENT_TOPIC_INFO: Handler(processor.parent, on_topic(Action.GET)),
            RequestCode.GET_LITE_TOPIC_INFO: Handler(processor.topic, get_parent),
            RequestCode.GET_LITE_CLIENT_INFO: Handler(
                processor.client, on_group(Action.GET, field="group")
            ),
            RequestCode.GET_LITE_GROUP_INFO: Handler(
                processor.group, on_group(Action.GET, field="group"), confirmed=True
            ),
            RequestCode.TRIGGER_LITE_DISPATCH: Handler(processor.dispatch, OPERATE),
        },
        begin_term=popping.begin_term,
        end_term=end_term,
        ending=popping.give_no_more,
        applied=popping.applied,
        flush=flush,
        tick=popping.tick,
        look_over=look_over,
        dropped=popping.drop,
        figures=figures,
    )
