"""Stores half messages in a topic that no consumer reads, until their transactions end.

Source: RocketMQ's TransactionalMessageBridge: meanwhile two properties of the message hold its
topic and its queue.
"""

from collections.abc import Mapping
from typing import Final

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.delay.due import read_due
from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.sends.pending_messages import PendingSend
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.names import HALF_TOPIC, check_group_name
from broker.topics.own_topics import OWN_TOPICS
from broker.transactions.commands import Prepare
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS
from remoting.message.properties import (
    CHECK_IMMUNITY_S,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    edit_properties,
    shown_value,
)
from remoting.message.record import MessageRecord


class HalfSends:
    """Stores half messages. Implements `sends.special_sends.SpecialSend`."""

    names = (TRANSACTION_PREPARED,)
    most_in_batch = 1

    def __init__(self, parts: Parts) -> None:
        self._transactions = parts.state[TRANSACTIONS]
        self._own_topics = parts[OWN_TOPICS]
        self._settings = parts[SETTINGS]
        self._shares = parts[USER_SHARES]
        self._delayed = parts[DELAYED_SENDS]
        self._ends = parts[ENDS]
        self._wall_clock_ms = parts.wall_clock_ms

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        return pairs.get(TRANSACTION_PREPARED, "").lower() == "true"

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Store the message of a send as a half message, and reply with the id of the transaction.

        Raises RequestRefused: (2) too many transactions are open, or delayed messages wait, of all
        users or of this one, (13) the message asks for too long a delay, (16) transactions are not
        accepted, (29) it does not name the group of its producer.
        """
        settings, open_now = self._settings.now, len(self._transactions.halves)
        if not settings.takes_transactions:
            raise RequestRefused.forbidden(
                "the broker sending transaction message is forbidden: rejectTransactionMessage"
            )
        if open_now >= settings.limits.max_open_transactions:
            raise RequestRefused.busy(
                f"[OVERLOAD]{open_now} transactions are open: end some, or start their producers"
            )
        group = pairs.get(PRODUCER_GROUP, "")
        check_group_name(group)
        max_delay_ms = settings.max_delay_s * 1000  # counts from the commit; checked now
        due = read_due(pairs, self._wall_clock_ms(), max_delay_ms)
        if due is not None:
            self._delayed.take_room(send.origin, send.command, due)
        most = settings.limits.max_open_transactions
        user, ends = self._shares.user_of(send.origin, send.command), self._ends
        is_half_full = 2 * open_now >= most
        self._shares.check_held(
            user, ends.count_of, "open transactions", most, is_half_full=is_half_full
        )
        immunity = settings.checks.immunity_ms(pairs.get(CHECK_IMMUNITY_S, ""))
        (record,) = send.records
        changes = {REAL_TOPIC: send.topic, REAL_QUEUE_ID: str(send.queue_id)}
        record.properties = edit_properties(record.properties, changes)
        send.topic, send.queue_id = HALF_TOPIC, 0
        self._own_topics.make(HALF_TOPIC)

        def attach(record: MessageRecord) -> LogCommand:
            # Store times never go back: after a clock was ahead, they are ahead for a while.
            stored_ms = min(record.store_timestamp, self._wall_clock_ms())
            return Prepare(group, stored_ms + immunity)

        def replied(position: int) -> Mapping[str, str]:
            ends.begun(position, user)
            return {"transactionId": shown_value(record.property_map()[UNIQUE_KEY])}

        send.attach, send.replied = attach, replied


HALF_SENDS: Final = Shared("half sends", HalfSends)
