"""Sends."""

from broker.errors import RequestRefused
from broker.sends.awaited_topics import AWAITED_TOPICS
from broker.sends.copies import COPIES
from broker.sends.processor import SendProcessor
from broker.sends.request import send_needs
from broker.sends.sends import SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    sends, awaited, copies = parts[SENDS], parts[AWAITED_TOPICS], parts[COPIES]
    processor = SendProcessor(parts)

    def end_term(refusal: RequestRefused) -> None:
        waiting = [*sends.take_waiting(), *awaited.take_waiting()]
        parts.work.each("sends that are refused", waiting, lambda send: send.refuse(refusal))

    def figures() -> dict[str, str]:
        return {
            "dledgerCopiesRefused": str(copies.refused),
            "dledgerCopiesShortened": str(copies.shortened),
            "dledgerCopiesStoodIn": str(copies.stood_in),
            "dledgerCopiesUntold": str(copies.untold),
            "dledgerUndelivered": str(copies.undelivered),
            "sendThreadPoolQueueSize": str(sends.waiting_messages),
        }

    return Service(
        handlers={
            RequestCode.SEND_MESSAGE: Handler(processor.send, send_needs),
            RequestCode.SEND_MESSAGE_V2: Handler(processor.send, send_needs),
            RequestCode.SEND_BATCH_MESSAGE: Handler(processor.send, send_needs),
        },
        begin_term=sends.begin_term,
        end_term=end_term,
        applied=sends.applied,
        flush=sends.flush,
        figures=figures,
    )
