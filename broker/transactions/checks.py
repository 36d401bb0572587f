"""Asks producers how their transactions end (39), and gives up those that never end, on the leader.

RocketMQ stores the message again for each check. Here a check is a small entry of the log, so that
no leader checks more often than it should. A check with no producer connected does not count: a
group whose producers are down for an hour finds its transactions open, until they have been gone
for too long.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop
from itertools import islice
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.log.one_by_one import call
from broker.log.submissions import Then, submit_commands
from broker.messages.fitted_properties import fitted
from broker.producers.members import PRODUCERS
from broker.retention.full_disk import FULL_DISK
from broker.sends.sends import SENDS
from broker.serving.memberships import Client
from broker.serving.needs import Action
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.topics.names import GIVEN_UP_TOPIC
from broker.topics.needs import topic_need
from broker.transactions.commands import Checked
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS, Half
from remoting.message.message_id import message_id
from remoting.message.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    edit_properties,
    kept_queue_id,
)
from remoting.message.record import encode_record
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# The pause between two looks for due transactions.
LOOK_S: Final = 1.0

# Transactions that one look examines in a millisecond. All may be due, without a producer to ask.
_LOOKED_AT: Final = 512

# Checked, given up or moved in one look: read and encoded in some milliseconds of the event loop.
_PASS_MESSAGES: Final = 64
_PASS_BYTES: Final = 1024 * 1024


class Checks:
    """Checks transactions while this member leads."""

    def __init__(self, parts: Parts) -> None:
        self._transactions = parts.state[TRANSACTIONS]
        self._log = parts.log
        self._ends = parts[ENDS]
        self._producers = parts[PRODUCERS]
        self._access = parts[ACCESS_GUARD]
        self._sends = parts[SENDS]
        self._disk = parts[FULL_DISK]
        self._settings = parts[SETTINGS]
        self._broker_name = parts.config.group
        self._address = parts.config.address
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._next_look = 0.0
        self._move_before = 0  # messages at smaller positions have to move
        self._asked: set[int] = set()  # transactions whose check is in flight, in this term
        # Due transactions from the heap, by due time and position.
        self._due: OrderedDict[tuple[int, int], None] = OrderedDict()

    def begin_term(self) -> None:
        self._asked = set()
        self._next_look = 0.0
        self._due.clear()
        self._transactions.find_due()

    def move_before(self, position: int) -> None:
        """Move half messages before a log position to the log's end, so that retention can drop
        them.
        """
        self._move_before = position

    def tick(self) -> None:
        """Call `look` if it is time."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now if self.look() else now + LOOK_S

    def look(self) -> bool:
        """Check, give up and move what is due; return whether there may be more."""
        is_more = self._move()
        if not self._disk.is_refusing:
            is_more |= self._check()
        self._sends.flush()
        return is_more

    # --- checks -------------------------------------------------------------------------------

    def _check(self) -> bool:
        """Check or give up due transactions, the oldest first; return whether there may be more."""
        now_ms = self._wall_clock_ms()
        hopeless: list[tuple[int, Half]] = []
        questions: list[int] = []
        size = 0
        is_more = len(self._due) > _LOOKED_AT
        for count, (position, half) in enumerate(self._looked_at(now_ms)):
            size += half.size
            if count == _PASS_MESSAGES or (size > _PASS_BYTES and size > half.size):
                is_more = True
                break
            if self._is_hopeless(half, now_ms):
                hopeless.append((position, half))
            elif self._has_producer(half):
                questions.append(position)
        for position, half in hopeless:
            self._give_up(position, half)
        if questions:
            self._ask(questions, now_ms + round(self._settings.now.checks.every_s * 1000))
        return is_more

    def _looked_at(self, now_ms: int) -> Iterator[tuple[int, Half]]:
        """Yield due transactions that can be checked or given up, after examining some.

        Those that were due earlier come first, then those that have become due. If a transaction
        stays due, all others are examined before it is again.
        """
        transactions, due = self._transactions, self._due
        for _ in range(min(_LOOKED_AT, len(due))):
            due_ms, position = first = next(iter(due))
            if not transactions.is_due_at(position, due_ms):
                del due[first]
            else:
                if self._can_act(position, now_ms):
                    yield position, transactions.halves[position]
                due.move_to_end(first)
        for _ in range(_LOOKED_AT):
            if not transactions.by_due or transactions.by_due[0][0] > now_ms:
                break
            due_ms, position = first = heappop(transactions.by_due)
            if first not in due and transactions.is_due_at(position, due_ms):
                due[first] = None
                if self._can_act(position, now_ms):
                    yield position, transactions.halves[position]

    def _can_act(self, position: int, now_ms: int) -> bool:
        if position in self._asked or self._ends.is_under_way(position):
            return False
        half = self._transactions.halves[position]
        return self._is_hopeless(half, now_ms) or bool(self._producers.members(half.group))

    def _has_producer(self, half: Half) -> bool:
        """Return whether a member of the group may be asked: if none may, the check does not
        count.
        """
        if not self._access.is_on:
            return True
        try:
            topic = self._ends.record(half).property_map()[REAL_TOPIC]
        except Exception:
            return True  # `_ask_now` tells why it cannot ask
        return self._producer_of(half, topic) is not None

    def _producer_of(self, half: Half, topic: str) -> Client | None:
        """Return a member to ask. Any client may join a producer group, and the question has the
        message in it.
        """
        needs = (topic_need(topic, Action.PUB),)
        return self._producers.any_of(
            half.group, lambda one, user: self._access.allows(user, one.origin.peer.host, needs)
        )

    def _is_hopeless(self, half: Half, now_ms: int) -> bool:
        policy = self._settings.now.checks
        return half.checks >= policy.max_checks or now_ms - half.stored_ms >= policy.give_up_ms

    def _give_up(self, position: int, half: Half) -> None:
        def then(refusal: RequestRefused | None) -> None:
            if refusal is not None:
                _logging("give up")(refusal)
                return
            _log.warning(
                "a transaction of producer group %s is given up after %d questions: nobody said "
                "how it ends; its message is in topic %s",
                quoted(half.group),
                half.checks,
                GIVEN_UP_TOPIC,
            )

        self._ends.give_up(position, half, then)

    def _ask(self, positions: list[int], next_ms: int) -> None:
        asked = self._asked
        asked.update(positions)

        def then(refusal: RequestRefused | None) -> None:
            asked.difference_update(positions)
            if refusal is not None:
                _logging("ask about")(refusal)
            elif asked is self._asked:
                for position in positions:
                    call(f"asking about the transaction at {position}", self._ask_now, position)

        submit_commands(self._log, [Checked(next_ms, tuple(positions))], then)

    def _ask_now(self, position: int) -> None:
        half = self._transactions.halves.get(position)
        if half is None:
            return  # it has ended
        try:
            record = self._ends.record(half)
        except RequestRefused as refusal:
            _logging("ask about")(refusal)
            return
        pairs = record.property_map()
        record.topic, record.queue_id = pairs[REAL_TOPIC], kept_queue_id(pairs)
        producer = self._producer_of(half, record.topic)
        if producer is None:
            return  # it has disconnected; the next check is later
        self._producers.asked(producer, half.group)
        record.properties = fitted(
            edit_properties(
                record.properties,
                {TRANSACTION_CHECK_TIMES: str(half.checks)},
                (REAL_TOPIC, REAL_QUEUE_ID),
            )
        ).run
        key = pairs.get(UNIQUE_KEY, "")
        fields = {
            "bname": self._broker_name,
            "topic": record.topic,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(position),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": message_id(self._address.host, self._address.port, position),
        }
        producer.origin.send_oneway(
            Command(RequestCode.CHECK_TRANSACTION_STATE, fields, encode_record(record))
        )

    # --- messages that retention drops --------------------------------------------------------

    def _move(self) -> bool:
        """Move some messages; return whether there may be more."""
        before = self._move_before
        if not before:
            return False
        halves = self._transactions.halves.items()
        some = ((at, half) for at, half in halves if half.at < before)
        waiting = list(islice(some, _PASS_MESSAGES + 1))
        if not waiting:
            self._move_before = 0
            return False
        size = 0
        for position, half in waiting[:_PASS_MESSAGES]:
            if size > _PASS_BYTES or self._ends.is_under_way(position):
                continue
            size += half.size
            self._ends.move(position, half, _logging("move"))
        return len(waiting) > _PASS_MESSAGES


def _logging(what: str) -> Then:
    """Log a refusal; a later look tries again."""

    def then(refusal: RequestRefused | None) -> None:
        if refusal is not None:
            _log.debug("cannot %s a transaction now: %s", what, quoted(refusal.remark))

    return then


CHECKS: Final = Shared("checks of transactions", Checks)
