"""The result of sending a message."""

from enum import IntEnum
from typing import NamedTuple

from remoting.bodies.message_queue import MessageQueue


class SendStatus(IntEnum):
    """How a broker stored a message; the numbers are the response codes of the wire."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """An acknowledged send.

    Attributes:
        status: `SendStatus.OK`, or stored with a reservation.
        message_id: the id that the producer gave the message (property ``UNIQ_KEY``).
        offset_message_id: the broker's id, made of its address and the place in its log; of a
            batch, one for each message with commas between.
        queue: the queue that it is stored in.
        queue_offset: its offset in the queue; of a batch, that of the first message.
        attempts: how often it was sent; normally 1.
        possibly_duplicated: an earlier attempt may have been stored, too.
        recall_handle: of a delayed message, for `Producer.recall`; empty if its broker gave none.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    attempts: int
    possibly_duplicated: bool
    recall_handle: str = ""
