"""Answers producers that end a transaction (37), and operators that resume one (323).

Source: RocketMQ's EndTransactionProcessor and AdminBrokerProcessor.
"""

from collections.abc import Sequence
from typing import Final

from broker.errors import EntryPassedOver, RequestRefused
from broker.messages.record_facts import read_record_facts
from broker.retention.full_disk import FULL_DISK
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.settings import SETTINGS
from broker.store.message_needs import message_needs
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import GIVEN_UP_TOPIC, HALF_TOPIC
from broker.topics.needs import topic_need
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS, End, Half
from remoting.message.properties import PRODUCER_GROUP, REAL_TOPIC
from remoting.message.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
    decode_record,
)
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

_ENDS: Final = {TRANSACTION_COMMIT: End.COMMITTED, TRANSACTION_ROLLBACK: End.ROLLED_BACK}


class TransactionProcessor:
    """Ends transactions, and resumes those that were given up."""

    def __init__(self, parts: Parts) -> None:
        self._transactions = parts.state[TRANSACTIONS]
        self._ends = parts[ENDS]
        self._reader = parts[MESSAGE_READER]
        self._disk = parts[FULL_DISK]
        self._settings = parts[SETTINGS]

    def end_needs(self, command: Command) -> Sequence[Need]:
        """Need to publish to the topic of the transaction's message, also if the transaction has
        ended: the answer says how. Where none is, see `message_needs`.
        """
        position = command.integer("commitLogOffset")
        half = self._transactions.halves.get(position)
        if half is not None:
            record = self._ends.record(half)
        else:
            stored = self._reader.record_at(position)
            facts = None if stored is None else read_record_facts(stored)
            if stored is None or facts is None or facts.topic not in (HALF_TOPIC, GIVEN_UP_TOPIC):
                return message_needs(None, Action.PUB)
            record, _end = decode_record(stored)
        topic = record.property_map()[REAL_TOPIC]
        return (topic_need(topic, Action.PUB)._replace(is_of_message=True),)

    def end(self, origin: Origin, command: Command) -> Command | None:
        """Commit a transaction or roll it back, once. If it has ended in the same way before, reply
        success.

        A producer that does not know the end yet is asked later.

        Raises RequestRefused: (1) there is no such transaction, or it is another group's, or it
        ended too long ago, (2) its end is in flight, (14) the disk is too full, (29) an unknown
        end, (604) it has ended otherwise; see `Ends.commit`.
        """
        group = command.name("producerGroup")
        position = command.integer("commitLogOffset")
        queue_offset = command.integer("tranStateTableOffset")
        how = command.int32("commitOrRollback")
        if how == TRANSACTION_NONE:
            return command.reply()
        end = _ENDS.get(how)
        if end is None:
            raise RequestRefused.invalid(
                f"commitOrRollback={how}: give {TRANSACTION_COMMIT}, {TRANSACTION_ROLLBACK} or 0"
            )
        half = self._transactions.halves.get(position)
        if half is None:
            return self._ended(command, position, end)
        self._check(half, group, queue_offset, position)

        reply = replying(origin, command)

        def done(refusal: RequestRefused | None) -> None:
            if isinstance(refusal, EntryPassedOver):
                refusal = _no_such(position)
            elif refusal is not None and refusal.code == ResponseCode.SYSTEM_ERROR:
                # The outcome is unknown, and the client may ask again.
                refusal = RequestRefused.not_available(refusal.remark)
            reply(refusal)

        if end is End.COMMITTED:
            self._disk.check()
            self._ends.commit(position, half, done)
        else:
            self._ends.roll_back(position, done)
        return None

    def _check(self, half: Half, group: str, queue_offset: int, position: int) -> None:
        # The remarks begin with RocketMQ's words, by which clients recognise them.
        if half.group != group:
            raise RequestRefused.failed(
                f"the producer group wrong: the transaction at {position} is of {half.group:.80}"
            )
        if half.queue_offset != queue_offset:
            raise RequestRefused.failed(
                f"the transaction state table offset wrong: that of the transaction at {position} "
                f"is {half.queue_offset}"
            )
        if self._ends.is_under_way(position):
            raise RequestRefused.busy(f"the transaction at {position} is being ended: ask again")

    def _ended(self, command: Command, position: int, end: End) -> Command:
        """Answer for a transaction that is not open."""
        ended = self._transactions.ends.get(position)
        if ended is None:
            raise self._forgotten(position) or _no_such(position)
        if ended is not end:
            words = ended.name.lower().replace("_", " ")
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION, f"the transaction at {position} was {words} before"
            )
        return command.reply()

    def _forgotten(self, position: int) -> RequestRefused | None:
        """Refuse for a transaction that ended before all remembered ones; None if there was none.

        Its producer may ask again because the first answer was lost. The remark must not look like
        a refusal to commit.
        """
        stored = self._reader.record_at(position)
        facts = None if stored is None else read_record_facts(stored)
        if facts is None or facts.topic != HALF_TOPIC:
            return None
        return RequestRefused.failed(
            f"the transaction at {position} has ended, and how is not remembered any more"
        )

    def resume(self, origin: Origin, command: Command) -> None:
        """Open a transaction again that was given up (323).

        RocketMQ stores any named message as a half message, even that of a committed transaction,
        and each time it is asked. Here the transaction must have been given up, and can be resumed
        once.

        Raises RequestRefused: (1) the message is not one given up, (2) too many transactions are
        open, (14) the disk is too full, (17) its topic was deleted since it was sent, (604) it was
        resumed before.
        """
        self._disk.check()
        message_id = command.text("msgId")
        stored = self._reader.record_named(message_id)
        record = None if stored is None else decode_record(stored)[0]
        if record is None or record.topic != GIVEN_UP_TOPIC:
            raise _not_given_up(message_id)
        position = record.physical_offset
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


def _no_such(position: int) -> RequestRefused:
    return RequestRefused.failed(
        f"find prepared transaction message failed: none is open at {position}"
    )


def _not_given_up(message_id: str) -> RequestRefused:
    return RequestRefused.failed(
        f"{message_id:.80} is no message of {GIVEN_UP_TOPIC}: give the offset id of one"
    )


def _resumed(message_id: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.ILLEGAL_OPERATION, f"the transaction of {message_id:.80} was resumed before"
    )
