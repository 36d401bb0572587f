"""Answers operators who have producers asked once more how a transaction ends (323).

RocketMQ stores any message that is named as a half message, also one whose transaction was
committed, and each time it is asked. Here it is one that was given up, and once. Source: RocketMQ's
AdminBrokerProcessor.resumeCheckHalfMessage.
"""

from broker.errors import EntryPassedOver, RequestRefused
from broker.retention.full_disk import FULL_DISK
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import GIVEN_UP_TOPIC
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS
from remoting.message.message_id import parse_message_id
from remoting.message.properties import PRODUCER_GROUP
from remoting.message.record import decode_record
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError


class ResumeProcessor:
    """Opens transactions once more."""

    def __init__(self, parts: Parts) -> None:
        self._transactions = parts.state[TRANSACTIONS]
        self._ends = parts[ENDS]
        self._reader = parts[MESSAGE_READER]
        self._settings = parts[SETTINGS]
        self._disk = parts[FULL_DISK]

    def resume(self, origin: Origin, command: Command) -> None:
        """Let a message wait for its transaction again that was given up.

        Raises:
            FieldMissing: the message is not named.
            RequestRefused: (1) it is none that was given up, (2) too many transactions are open,
                (14) the disk is too full, (17) its topic was deleted since it was sent, (604) it
                was resumed before.
        """
        self._disk.check()
        message_id = command.text("msgId")
        try:
            position = parse_message_id(message_id).physical_offset
        except RemotingError:
            position = -1
        stored = self._reader.record_at(position)
        record = None if stored is None else decode_record(stored)[0]
        if record is None or record.topic != GIVEN_UP_TOPIC:
            raise _none(message_id)
        if position in self._transactions.resumed or self._ends.is_under_way(position):
            raise _resumed(message_id)
        settings, open_now = self._settings.now, len(self._transactions.halves)
        if open_now >= settings.limits.max_open_transactions:
            raise RequestRefused.busy(f"[OVERLOAD]{open_now} transactions are open: end some")
        reply = replying(origin, command)

        def then(refusal: RequestRefused | None) -> None:
            reply(_resumed(message_id) if isinstance(refusal, EntryPassedOver) else refusal)

        group = record.property_map().get(PRODUCER_GROUP, "")
        self._ends.resume(position, record, group, settings.checks.immunity_ms(""), then)


def _none(message_id: str) -> RequestRefused:
    return RequestRefused.failed(
        f"{message_id:.80} is no message of {GIVEN_UP_TOPIC}: give the offset id of one"
    )


def _resumed(message_id: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.ILLEGAL_OPERATION, f"the transaction of {message_id:.80} was resumed before"
    )
