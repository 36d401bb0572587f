"""Receipt handles: the words by which a broker knows a delivery, and the message's log position.

Blanks stand between offset of the first message, time of the pop, invisible time, queue of
check-points, kind of topic, broker, queue, offset, position, and the lite topic if there is one.
Source: RocketMQ's ReceiptHandle.
"""

from typing import Final, NamedTuple

from proxy.names import is_lite_topic
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.message.topic_names import RETRY_PREFIX
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing
from remoting.wire.field_values import INT32_MAX, is_name, read_natural

_WORDS: Final = 9
_MAX_CHARACTERS: Final = 1024

# Kinds of topics: the topic itself, and RocketMQ's two forms of a group's retry topic for it.
_ITSELF: Final = "0"
_RETRY_FORMS: Final = {"1": RETRY_PREFIX + "{}_{}", "2": RETRY_PREFIX + "{}+{}"}


class ReceiptHandle(NamedTuple):
    """One delivery of a message.

    Attributes:
        first: offset of the first message that was given with it.
        popped_ms: when it was given, by the broker's clock.
        invisible_ms: for how long.
        check_point_queue: where RocketMQ's brokers remember it.
        kind: of the topic that it was read from.
        broker_name: the group of brokers that has it.
        queue_id: its queue.
        offset: its offset there.
        position: its position in the log.
        lite_topic: the lite topic of its queue; empty without one.
    """

    first: int
    popped_ms: int
    invisible_ms: int
    check_point_queue: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int
    position: int
    lite_topic: str = ""

    @property
    def broker_words(self) -> str:
        """What brokers take as its name."""
        return (
            f"{self.first} {self.popped_ms} {self.invisible_ms} {self.check_point_queue} "
            f"{self.kind} {self.broker_name} {self.queue_id} {self.offset}"
        )

    def __str__(self) -> str:
        words = f"{self.broker_words} {self.position}"
        return f"{words} {self.lite_topic}" if self.lite_topic else words

    def hidden(self, reply: Command) -> "ReceiptHandle":
        """Return the handle after its broker has changed the invisible time.

        Raises Refused (50001): the answer lacks a part.
        """
        try:
            return self._replace(
                popped_ms=reply.integer("popTime"),
                invisible_ms=reply.integer("invisibleTime"),
                check_point_queue=reply.integer("reviveQid", 0),
            )
        except FieldMissing as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from error

    def request(self, code: RequestCode, group: str, topic: str) -> Command:
        """Return a request to its broker about this delivery."""
        fields = {
            "consumerGroup": group,
            "topic": self.read_from(group, topic),
            "queueId": str(self.queue_id),
            "offset": str(self.offset),
            "extraInfo": self.broker_words,
        }
        if self.lite_topic:
            fields["liteTopic"] = self.lite_topic
        return Command(code, fields)

    def read_from(self, group: str, topic: str) -> str:
        """Return the topic that the message was read from."""
        form = _RETRY_FORMS.get(self.kind)
        return topic if form is None else form.format(group, topic)


def read_handle(text: str) -> ReceiptHandle:
    """Raises Refused (40013): it is no handle that a proxy has given. Clients then drop it."""
    words = text.split(" ") if len(text) <= _MAX_CHARACTERS else []
    lite_topic = words.pop() if len(words) == _WORDS + 1 and is_lite_topic(words[-1]) else ""
    if len(words) == _WORDS:
        numbers = [read_natural(word) for word in (*words[:4], *words[6:])]
        kind, broker_name = words[4], words[5]
        is_kind = kind in (_ITSELF, *_RETRY_FORMS)
        if None not in numbers and is_kind and broker_name and is_name(broker_name):
            first, popped, invisible, revive, queue_id, offset, position = (
                number or 0 for number in numbers
            )
            if queue_id > INT32_MAX:
                raise _unread(text)
            return ReceiptHandle(
                *(first, popped, invisible, revive, kind),
                *(broker_name, queue_id, offset, position, lite_topic),
            )
    raise _unread(text)


def _unread(text: str) -> Refused:
    return Refused(Code.INVALID_RECEIPT_HANDLE, f"{text!r:.100} is no receipt handle: receive anew")
