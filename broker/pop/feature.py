"""POP."""

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.groups.changes import GROUP_CHANGES
from broker.pop.acks import PopAcks
from broker.pop.choice import Chooser
from broker.pop.crowding import Crowding
from broker.pop.limits import MAX_WAITING_ACKS
from broker.pop.lost_messages import LostMessages
from broker.pop.popping import Popping
from broker.pop.state import POPS
from broker.pulls.readable import READABLE
from broker.retention.full_disk import FULL_DISK
from broker.sends.copies import COPIES
from broker.sends.sends import SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    state, log, reader = parts.state, parts.log, parts[MESSAGE_READER]
    chooser = Chooser(state, reader)
    lost = LostMessages(state, log, reader, parts[SENDS], parts[COPIES], parts[FULL_DISK])
    popping = Popping(
        state,
        log,
        reader,
        chooser,
        lost,
        Crowding(state, parts.clock),
        parts[GROUP_CHANGES],
        parts[CONSUMERS],
        parts[READABLE],
        parts[TRAFFIC],
        parts.wall_clock_ms,
        parts.clock,
        parts.work,
    )
    acks = PopAcks(
        *(state, log, reader, chooser, popping.freed, parts.confirm),
        *(parts[TRAFFIC], parts.wall_clock_ms, parts.work),
    )

    def begin_term() -> None:
        lost.begin_term()
        popping.begin_term()

    def end_term(refusal: RequestRefused) -> None:
        popping.end_term(refusal)
        acks.refuse_waiting(refusal)

    def flush() -> None:
        acks.flush()
        popping.flush()

    def figures() -> dict[str, str]:
        return {
            "ackThreadPoolQueueCapacity": str(MAX_WAITING_ACKS),
            "ackThreadPoolQueueSize": str(acks.waiting),
            "dledgerPopsWaiting": str(len(popping)),
            "dledgerPoppedInFlight": str(state[POPS].flying),
        }

    return Service(
        handlers={
            RequestCode.POP_MESSAGE: Handler(popping.pop, while_ending=True),
            RequestCode.NOTIFICATION: Handler(popping.notify, while_ending=True),
            RequestCode.PEEK_MESSAGE: Handler(popping.peek, confirmed=True),
            RequestCode.POLLING_INFO: Handler(popping.polling_info),
            RequestCode.ACK_MESSAGE: Handler(acks.ack),
            RequestCode.BATCH_ACK_MESSAGE: Handler(acks.ack_batch),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Handler(acks.hide),
        },
        begin_term=begin_term,
        end_term=end_term,
        ending=popping.give_no_more,
        applied=popping.applied,
        flush=flush,
        tick=popping.tick,
        dropped=popping.drop,
        figures=figures,
    )
