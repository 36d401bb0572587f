"""Messages that consumers send back."""

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.groups.changes import GROUP_CHANGES
from broker.retention.full_disk import FULL_DISK
from broker.retry.processor import RetryProcessor
from broker.sends.copies import COPIES
from broker.sends.sends import SENDS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    """What serves clients."""
    processor = RetryProcessor(
        parts.state,
        parts[SENDS],
        parts[COPIES],
        parts[GROUP_CHANGES],
        parts[MESSAGE_READER],
        parts[DELAYED_SENDS],
        parts[FULL_DISK],
        parts[SETTINGS],
        parts[TRAFFIC],
        parts.config.group,
    )
    return Service(handlers={RequestCode.CONSUMER_SEND_MSG_BACK: Handler(processor.send_back)})
