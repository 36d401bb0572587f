"""The id of a transaction, which says all that its end needs: any proxy can end it, at any time."""

import base64
import binascii
from typing import Final, NamedTuple

from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.wire.field_values import read_natural

_VERSION: Final = "1"
# The client's id of a message has 255 characters of up to four bytes, which base64 makes longer.
_MAX_CHARACTERS: Final = 2048


class TransactionId(NamedTuple):
    """Where a half message is.

    Attributes:
        broker_name: the group of brokers that has it.
        half_offset: its offset among the half messages.
        physical_offset: its position in the log.
        message_id: from its client.
    """

    broker_name: str
    half_offset: int
    physical_offset: int
    message_id: str

    def __str__(self) -> str:
        words = (
            f"{_VERSION} {self.half_offset} {self.physical_offset} {self.broker_name} "
            f"{self.message_id}"
        )
        return base64.urlsafe_b64encode(words.encode()).decode()


def read_transaction_id(text: str) -> TransactionId:
    """Raises Refused (40008): it is no id that a proxy has given."""
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError("too long")
        words = base64.b64decode(text.encode(), b"-_", validate=True).decode().split(" ", 4)
    except (ValueError, binascii.Error):
        words = []
    if len(words) == 5 and words[0] == _VERSION and words[3]:
        half_offset, physical_offset = read_natural(words[1]), read_natural(words[2])
        if half_offset is not None and physical_offset is not None:
            return TransactionId(words[3], half_offset, physical_offset, words[4])
    raise Refused(
        Code.INVALID_TRANSACTION_ID,
        f"{text!r:.80} is no transaction id: use the one that the send has returned",
    )
