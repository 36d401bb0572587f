"""Redriving of dead letters."""

from broker.dead_letters.processor import RedriveProcessor
from broker.dead_letters.state import REDRIVEN
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = RedriveProcessor(parts)
    redriven = parts.state[REDRIVEN]
    return Service(
        handlers={
            RequestCode.REDRIVE_DEAD_LETTERS: Handler(
                processor.redrive, processor.needs, is_audited=True
            )
        },
        begin_term=processor.begin_term,
        figures=lambda: {"dledgerRedrivenDeadLetters": str(redriven.redriven_letters)},
    )
