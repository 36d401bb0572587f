"""Proposes the ends of transactions. Each transaction ends once.

If a proposal of this member is not applied in its term, the next leader finds the transaction open,
and checks it.
"""

from typing import Final

from broker.delay.delayed_sends import DELAYED_SENDS
from broker.delay.due import read_due
from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.submissions import Then, submit_commands
from broker.sends.copies import COPIES, Copy, StandIn
from broker.serving.counts import Counts
from broker.serving.parts import Parts, Shared
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.names import GIVEN_UP_TOPIC, HALF_TOPIC
from broker.topics.own_topics import OWN_TOPICS
from broker.topics.state import TOPICS
from broker.transactions.commands import Commit, GiveUp, MoveHalf, Resume, Rollback
from broker.transactions.state import TRANSACTIONS, Half
from remoting.message.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_PREPARED,
    edit_properties,
    kept_queue_id,
)
from remoting.message.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    MessageRecord,
    decode_record,
)

_WHAT: Final = "the message of a transaction"


class Ends:
    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._copies = parts[COPIES]
        self._changes = parts[TOPIC_CHANGES]
        self._delayed = parts[DELAYED_SENDS]
        self._own_topics = parts[OWN_TOPICS]
        self._wall_clock_ms = parts.wall_clock_ms
        self._transactions = parts.state[TRANSACTIONS]
        self._under_way: set[int] = set()  # positions; a new set for each term
        # Whose transactions are open, of those begun in this term.
        self._users: dict[int, str] = {}
        self._counts = Counts()

    def begin_term(self) -> None:
        self._under_way = set()
        self._users, self._counts = {}, Counts()

    def begun(self, position: int, user: str | None) -> None:
        """Note that a user has begun a transaction; None for users that are not counted."""
        if user is not None:
            self._users[position] = user
            self._counts.add(user)

    def count_of(self, user: str) -> int:
        """Return how many transactions of a user are open, of those begun in this term."""
        return self._counts.of(user)

    def is_under_way(self, position: int) -> bool:
        return position in self._under_way

    def record(self, half: Half) -> MessageRecord:
        """Read the message of a transaction.

        Raises RequestRefused (14): this member started from a snapshot, and lacks the message.
        """
        if half.at < self._log.begin_position:
            raise RequestRefused.not_available(
                "this member lacks the message of the transaction: let another member lead"
            )
        record, _end = decode_record(self._log.read_bytes(half.at, half.size))
        return record

    def commit(self, position: int, half: Half, then: Then) -> None:
        """Store the message of a transaction in its topic.

        If no entry can hold it there, the transaction is given up, and `then` is told why.

        Raises RequestRefused: (2) its topic is being deleted; (17) its topic was deleted, so it is
        rolled back; see `record`.
        """
        record = self.record(half)
        pairs = record.property_map()
        topic = pairs[REAL_TOPIC]
        if not self._changes.is_same(topic, position):
            self.roll_back(position, lambda _refusal: None)
            raise RequestRefused.no_topic(
                f"topic {topic} was deleted since the message was sent: it is rolled back"
            )
        # The topic may have fewer queues by now.
        queue_id = kept_queue_id(pairs) % self._topics.configs[topic].write_queue_count
        record.properties = edit_properties(
            record.properties, {}, (REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED)
        )
        record.system_flag = record.system_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        record.prepared_transaction_offset = position
        due = read_due(pairs, self._wall_clock_ms())

        def told(refusal: RequestRefused | None) -> None:
            then(refusal or copy.never)

        done = self._began(position, told)
        copy = Copy(_WHAT, topic, queue_id, record, done, _stand_in(position))
        copy.attach = lambda _record: Commit(position)
        if due is not None:
            self._delayed.delay(copy, due, lambda due_ms: Commit(position, due_ms))
        self._copies.store(copy)

    def roll_back(self, position: int, then: Then) -> None:
        submit_commands(self._log, [Rollback(position)], self._began(position, then))

    def give_up(self, position: int, half: Half, then: Then) -> None:
        """Store the message of a transaction where operators find it."""
        self._own_topics.make(GIVEN_UP_TOPIC)
        self._store(GIVEN_UP_TOPIC, half, GiveUp(position), position, then)

    def move(self, position: int, half: Half, then: Then) -> None:
        """Store the message of a transaction again at the end of the log, so that retention can
        drop the old one.
        """
        self._store(HALF_TOPIC, half, MoveHalf(position), position, then)

    def resume(
        self, position: int, record: MessageRecord, group: str, wait_ms: int, then: Then
    ) -> None:
        """Open a transaction again that was given up.

        Args:
            position: of its message among those given up.
            record: the message.
            group: its producer group.
            wait_ms: how much later producers are checked.
            then: told the outcome.

        Raises RequestRefused: (2) its topic is being deleted, (17) its topic was deleted since it
        was sent.
        """
        topic = record.property_map().get(REAL_TOPIC, "")
        # Earlier versions did not store the position of the half message.
        if not self._changes.is_same(topic, record.prepared_transaction_offset or position):
            raise RequestRefused.no_topic(
                f"topic {topic:.127} was deleted since the message was sent: send it anew"
            )
        self._own_topics.make(HALF_TOPIC)
        done = self._began(position, then)

        def attach(placed: MessageRecord) -> LogCommand:
            stored_ms = min(placed.store_timestamp, self._wall_clock_ms())
            return Resume(position, group, stored_ms + wait_ms)

        self._copies.store(Copy(_WHAT, HALF_TOPIC, 0, record, done, None, attach))

    def _store(
        self, topic: str, half: Half, command: LogCommand, position: int, then: Then
    ) -> None:
        done, stand_in = self._began(position, then), _stand_in(position)

        def step() -> None:
            record = self.record(half)
            record.prepared_transaction_offset = position
            self._copies.store(Copy(_WHAT, topic, 0, record, done, stand_in, lambda _: command))

        self._copies.attempt(_WHAT, half.at, stand_in, done, step)

    def _began(self, position: int, then: Then) -> Then:
        """Note that the end of a transaction is in flight; return the callback for the outcome."""
        under_way = self._under_way
        under_way.add(position)

        def done(refusal: RequestRefused | None) -> None:
            under_way.discard(position)
            if position not in self._transactions.halves:
                self._counts.remove(self._users.pop(position, None))
            then(refusal)

        return done


def _stand_in(position: int) -> StandIn:
    """Return the end of a transaction whose message can never be copied."""
    return StandIn(GiveUp(position), Rollback(position))


ENDS: Final = Shared("ends of transactions", Ends)
