"""The room in an entry of the log, and the most that a message and its copies can need.

A message is stored several times: when it is delayed, when it is due, when it is retried, when it
becomes a dead letter. The broker adds properties to each copy, and its topic may have a longer
name, and a command may follow it. So a message is accepted only if its largest copy fits.
"""

from typing import Final

from broker.errors import RequestRefused
from broker.formats.state import FORMATS
from broker.limits import MAX_QUEUES_PER_TOPIC
from broker.log.entry import LARGE_ENTRIES_VERSION
from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.messages.record_facts import SMALLEST_RECORD_BYTES
from broker.serving.parts import Shared
from dledger import MAX_BODY_BYTES
from remoting.message.properties import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    MESSAGE_REGION,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_OUT_MS,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
)
from remoting.message.record import MAX_TOPIC_BYTES

_MESSAGE_ID_BYTES: Final = 32
_NUMBER_BYTES: Final = 20  # of 64 bits, in digits

# Properties that the broker adds to messages and their copies, and the sizes of the longest values.
ADDED_PROPERTIES: Final = {
    UNIQUE_KEY: _MESSAGE_ID_BYTES,
    MESSAGE_REGION: MAX_TOPIC_BYTES,
    REAL_TOPIC: MAX_TOPIC_BYTES,
    REAL_QUEUE_ID: len(str(MAX_QUEUES_PER_TOPIC)),
    TIMER_OUT_MS: _NUMBER_BYTES,
    RETRY_TOPIC: MAX_TOPIC_BYTES,
    ORIGIN_MESSAGE_ID: _MESSAGE_ID_BYTES,
    DEAD_LETTER_ORIGIN_TOPIC: MAX_TOPIC_BYTES,
    DEAD_LETTER_ORIGIN_MESSAGE_ID: _MESSAGE_ID_BYTES,
    TRANSACTION_CHECK_TIMES: _NUMBER_BYTES,
}
_SEPARATORS_BYTES: Final = 2  # one in a pair, and one after it

# The longest command that follows a record: two names and some numbers.
MAX_ATTACHED_BYTES: Final = 512

# The size of the largest copy of a message without its body and its own properties.
COPY_BYTES: Final = (
    SMALLEST_RECORD_BYTES
    + MAX_TOPIC_BYTES
    + sum([len(name) + most + _SEPARATORS_BYTES for name, most in ADDED_PROPERTIES.items()])
    + _SEPARATORS_BYTES
    + MAX_ATTACHED_BYTES
)


class EntryRoom:
    """The room in an entry of the log.

    `copy_bytes`: kept free for copies; less only where names are known to be short.
    """

    def __init__(self, state: BrokerState, log: Log, copy_bytes: int = COPY_BYTES) -> None:
        self._formats = state[FORMATS]
        self._log = log
        self._copy_bytes = copy_bytes
        # Fits every format, so that most messages are compared with one number.
        self._always_bytes = min(log.max_body_bytes, MAX_BODY_BYTES) - copy_bytes

    @property
    def most_bytes(self) -> int:
        """The longest entry body. Members of older versions read no more than Java DLedger does."""
        most = self._log.max_body_bytes
        if self._formats.format_version >= LARGE_ENTRIES_VERSION:
            return most
        return min(most, MAX_BODY_BYTES)

    def check(self, message_bytes: int) -> None:
        """Check that all copies of a message will fit. Raises RequestRefused (13).

        `message_bytes`: of its body and its properties together.
        """
        if message_bytes <= self._always_bytes:
            return
        most = self.most_bytes - self._copy_bytes
        if message_bytes > most:
            raise RequestRefused.illegal(
                f"a message of {message_bytes} bytes with its properties: at most {most}"
            )


ENTRY_ROOM: Final = Shared("entry room", lambda parts: EntryRoom(parts.state, parts.log))
