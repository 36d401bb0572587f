"""Messages on their way into the log: those of a client's request, and those the broker makes."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.sends.request import REGION
from broker.serving.origin import Origin
from remoting.bodies.topic_config import TopicConfig
from remoting.message.host import ipv4_host
from remoting.message.record import MessageRecord
from remoting.message.record_batch import RecordBatch, Records
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# A record without its body, roughly: headers, names and properties.
_OTHER_BYTES: Final = 512

# By client. A write costs more than the reply in it, so those of one append go together.
Replies: TypeAlias = dict[Origin, list[Command]]

# Makes the command that is folded together with a record.
Attach: TypeAlias = Callable[[MessageRecord], LogCommand]


class PendingMessages(Protocol):
    """Messages for one queue. `Sends` gives them their places.

    Attributes:
        topic: where they go.
        records: the messages. `Sends` sets all that depends on their places.
        size: bytes of their bodies and properties, roughly.
        first_offset: of the first message in the queue, once it has one.
        attach: makes the command that stands behind a record, once the record has its place but in
            the log. None for messages with nothing behind them.
    """

    topic: str
    queue_id: int
    records: Records
    size: int
    first_offset: int
    attach: Attach | None

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        """They are stored and applied, at these positions of the log; add the reply to those that
        are about to be sent.
        """
        ...

    def failed(self) -> None:
        """`stored` raised: tell the client that waits, if one does, that it has to ask."""
        ...

    def refuse(self, refusal: RequestRefused) -> None:
        """They were not stored, or it is unknown whether they were."""
        ...


class PendingSend:
    """Messages of one request of a producer. Implements `PendingMessages`.

    Args:
        origin: the client that sent them.
        topic, queue_id, records: see `PendingMessages`.
        id_prefix: what the ids of messages begin with at this broker.

    Attributes:
        attach: see `PendingMessages`.
        replied: makes further fields of the reply, given where the first message is stored.
        needs: a further topic that has to be there before the messages are stored.
    """

    __slots__ = (
        "_asked_queue_id",
        "_command",
        "_id_prefix",
        "attach",
        "first_offset",
        "needs",
        "origin",
        "queue_id",
        "records",
        "replied",
        "size",
        "topic",
    )

    def __init__(
        self,
        origin: Origin,
        command: Command,
        topic: str,
        queue_id: int,
        records: Records,
        id_prefix: str,
    ) -> None:
        self.origin = origin
        self._command = command
        self._id_prefix = id_prefix
        self._asked_queue_id = queue_id  # the client's, wherever the messages are stored
        self.attach: Attach | None = None
        self.replied: Callable[[int], Mapping[str, str]] | None = None
        self.needs: TopicConfig | None = None
        self.topic = topic
        self.queue_id = queue_id
        self.records = records
        self.first_offset = 0
        self.size = len(command.body) + _OTHER_BYTES * len(records)
        peer = origin.peer
        host, port = ipv4_host(peer.host), peer.port
        for record in (records.shared,) if isinstance(records, RecordBatch) else records:
            record.born_host, record.born_port = host, port

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        """Tell the client where its messages are."""
        prefix = self._id_prefix
        ends = struct.pack(f">{len(positions)}q", *positions).hex(",", 8).upper()
        fields = {
            "msgId": prefix + ends.replace(",", "," + prefix),
            "queueId": str(self._asked_queue_id),
            "queueOffset": str(self.first_offset),
            "MSG_REGION": REGION,
            "TRACE_ON": "true",
        }
        if self.replied is not None:
            fields.update(self.replied(positions[0]))
        replies.setdefault(self.origin, []).append(
            self._command.reply(ResponseCode.SUCCESS, fields)
        )

    def failed(self) -> None:
        remark = "the messages are stored, and the answer could not be made: see the broker's log"
        self.origin.send(self._command.reply(ResponseCode.SYSTEM_ERROR, remark=remark))

    def refuse(self, refusal: RequestRefused) -> None:
        """Answer that the messages were not stored."""
        self.origin.send(refusal.reply_to(self._command))


class MadeMessages:
    """Messages that the broker itself makes, such as copies for a retry topic.

    Implements `PendingMessages`.

    Args:
        topic, queue_id, records: see `PendingMessages`.
        done: called with None when they are stored and applied, or with why they are not.
        attach: see `PendingMessages`.
    """

    __slots__ = ("_done", "attach", "first_offset", "queue_id", "records", "size", "topic")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        records: Records,
        done: Callable[[RequestRefused | None], None],
        attach: Attach | None = None,
    ) -> None:
        self._done = done
        self.attach = attach
        self.topic = topic
        self.queue_id = queue_id
        self.records = records
        self.first_offset = 0
        self.size = sum([len(one.body) for one in records]) + _OTHER_BYTES * len(records)

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        self._done(None)

    def failed(self) -> None:
        """As in `PendingMessages`: what `done` raised is all that there is to say."""

    def refuse(self, refusal: RequestRefused) -> None:
        self._done(refusal)
