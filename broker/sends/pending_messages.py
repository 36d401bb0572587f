"""Messages that wait for the log: from requests of clients, and made by the broker."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.submissions import Then
from broker.sends.request import REGION
from broker.serving.origin import Origin
from remoting.bodies.topic_config import TopicConfig
from remoting.message.host import ipv4_host
from remoting.message.record import MessageRecord
from remoting.message.record_batch import RecordBatch, Records
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# A record without its body and its properties, roughly.
_OTHER_BYTES: Final = 512

# By client. A write costs more than the reply in it, so the replies of one append go together.
Replies: TypeAlias = dict[Origin, list[Command]]

# Makes the command that follows a record.
Attach: TypeAlias = Callable[[MessageRecord], LogCommand]


class PendingMessages(Protocol):
    """Messages for one queue. `Sends` gives them their places.

    Attributes:
        records: the messages. `Sends` sets all that depends on their places.
        size: bytes of their bodies and properties, roughly.
        first_offset: queue offset of the first message, once it has one.
        attach: makes the command that follows a record, which has its place except in the log.
    """

    topic: str
    queue_id: int
    records: Records
    size: int
    first_offset: int
    attach: Attach | None

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        """Add the reply to `replies`: the messages are applied, at these positions of the log."""

    def failed(self) -> None:
        """Tell the waiting client, if any, that `stored` raised and it has to ask."""

    def refuse(self, refusal: RequestRefused) -> None:
        """Answer that they were not stored, or that this is unknown."""


class PendingSend:
    """Messages of one request of a producer. Implements `PendingMessages`.

    Attributes:
        id_prefix: the beginning of all message ids of this broker.
        asked_queue_id: the client's, wherever the messages are stored.
        replied: makes further fields of the reply, given the position of the first message.
        needs: a further topic that must exist before the messages are stored.
        answered: called once when it is answered.
    """

    __slots__ = (
        *(
            "answered",
            "asked_queue_id",
            "attach",
            "command",
            "first_offset",
            "id_prefix",
            "needs",
            "origin",
        ),
        *("queue_id", "records", "replied", "size", "topic"),
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
        self.command = command
        self.topic = topic
        self.queue_id = self.asked_queue_id = queue_id
        self.records = records
        self.id_prefix = id_prefix
        self.attach: Attach | None = None
        self.replied: Callable[[int], Mapping[str, str]] | None = None
        self.needs: TopicConfig | None = None
        self.answered: Callable[[], None] | None = None
        self.first_offset = 0
        self.size = len(command.body) + _OTHER_BYTES * len(records)
        if len(records) == 1:  # the body of a batch has the properties in it
            self.size += len(records[0].properties)
        host, port = origin.peer
        host = ipv4_host(host)
        for record in (records.shared,) if isinstance(records, RecordBatch) else records:
            record.born_host, record.born_port = host, port

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        if self.answered is not None:
            self.answered()
        prefix = self.id_prefix
        if len(positions) == 1:
            ids = f"{prefix}{positions[0]:016X}"
        else:
            ends = struct.pack(f">{len(positions)}q", *positions).hex(",", 8).upper()
            ids = prefix + ends.replace(",", "," + prefix)
        fields = {
            "msgId": ids,
            "queueId": str(self.asked_queue_id),
            "queueOffset": str(self.first_offset),
            "MSG_REGION": REGION,
            "TRACE_ON": "true",
        }
        if self.replied is not None:
            fields.update(self.replied(positions[0]))
        replies.setdefault(self.origin, []).append(self.command.reply(ResponseCode.SUCCESS, fields))

    def failed(self) -> None:
        remark = "the messages are stored, and the answer could not be made: see the broker's log"
        self.origin.send(self.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark))

    def refuse(self, refusal: RequestRefused) -> None:
        if self.answered is not None:
            self.answered()
        self.origin.send(refusal.reply_to(self.command))


@dataclass(slots=True, eq=False)
class MadeMessages:
    """Messages that the broker makes, such as copies for a retry topic. Implements
    `PendingMessages`.

    `done`: called with None when they are stored and applied, or with the refusal.
    """

    topic: str
    queue_id: int
    records: Records
    done: Then
    attach: Attach | None = None
    first_offset: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        contents = sum([len(one.body) + len(one.properties) for one in self.records])
        self.size = contents + _OTHER_BYTES * len(self.records)

    def stored(self, positions: Sequence[int], replies: Replies) -> None:
        self.done(None)

    def failed(self) -> None:
        """Do nothing: the error of `done` is logged."""

    def refuse(self, refusal: RequestRefused) -> None:
        self.done(refusal)
