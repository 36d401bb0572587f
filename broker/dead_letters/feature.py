"""Dead letters that are delivered once more."""

from broker.dead_letters.processor import RedriveProcessor
from broker.dead_letters.state import REDRIVEN
from broker.retention.full_disk import FULL_DISK
from broker.sends.copies import COPIES
from broker.sends.sends import SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    processor = RedriveProcessor(
        parts.state,
        parts[SENDS],
        parts[COPIES],
        parts[MESSAGE_READER],
        parts[FULL_DISK],
        parts[SETTINGS],
    )
    redriven = parts.state[REDRIVEN]
    return Service(
        handlers={RequestCode.REDRIVE_DEAD_LETTERS: Handler(processor.redrive)},
        begin_term=processor.begin_term,
        figures=lambda: {"dledgerRedrivenDeadLetters": str(redriven.redriven_letters)},
    )
