"""POP."""

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.pop.acks import PopAcks
from broker.pop.choice import Chooser
from broker.pop.limits import MAX_WAITING_ACKS
from broker.pop.popping import Popping
from broker.pop.state import POPS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import CONSUMES
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    pops, chooser = parts.state[POPS], Chooser(parts)
    popping = Popping(parts, chooser)
    acks = PopAcks(parts, chooser, popping.freed)
    parts[ACCESS_GUARD].watchers.append(popping.ask_again)

    def end_term(refusal: RequestRefused) -> None:
        popping.end_term(refusal)
        acks.gathered.refuse_waiting(refusal)

    def flush() -> None:
        acks.gathered.flush()
        popping.flush()

    def figures() -> dict[str, str]:
        return {
            "ackThreadPoolQueueCapacity": str(MAX_WAITING_ACKS),
            "ackThreadPoolQueueSize": str(len(acks.gathered)),
            "dledgerPopsWaiting": str(len(popping)),
            "dledgerPoppedInFlight": str(pops.in_flight_count),
        }

    return Service(
        handlers={
            RequestCode.POP_MESSAGE: Handler(popping.pop, CONSUMES, while_ending=True),
            RequestCode.NOTIFICATION: Handler(popping.notify, CONSUMES, while_ending=True),
            RequestCode.PEEK_MESSAGE: Handler(popping.peek, CONSUMES, confirmed=True),
            RequestCode.POLLING_INFO: Handler(popping.polling_info, CONSUMES),
            RequestCode.ACK_MESSAGE: Handler(acks.ack, CONSUMES),
            RequestCode.BATCH_ACK_MESSAGE: Handler(acks.ack_batch, acks.batch_needs),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Handler(acks.hide, CONSUMES),
        },
        begin_term=popping.begin_term,
        end_term=end_term,
        ending=popping.give_no_more,
        applied=popping.applied,
        flush=flush,
        tick=popping.tick,
        dropped=popping.drop,
        figures=figures,
    )
