"""Delivers the messages that are due, on the leader.

It proposes copies of them, oldest first, each with the command that ends its wait. If a copy is not
applied in the leader's term, the next leader finds the message waiting.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.delay.commands import Deliver, DropDelayed, MoveDelayed
from broker.delay.due import DELAY_NAMES
from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.submissions import Then, submit_commands
from broker.retention.full_disk import FULL_DISK
from broker.sends.copies import COPIES, Copy, StandIn
from broker.sends.sends import SENDS
from broker.serving.parts import Parts, Shared
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.state import TOPICS
from remoting.message.properties import REAL_TOPIC, edit_properties, kept_queue_id
from remoting.message.record import MessageRecord, decode_record
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

_WHAT: Final = "a delayed message"

# Read and encoded in one step: a few milliseconds of the event loop.
_PASS_MESSAGES: Final = 64
_PASS_BYTES: Final = 1024 * 1024

# Read from the table at once, and in flight at once.
_FETCHED_MESSAGES: Final = 256
_UNDER_WAY_MESSAGES: Final = 512

# Of topics that are being deleted. Each fetch skips them.
_DEFERRED_MESSAGES: Final = 4096

# The longest pause. A clock that is set forward delays a delivery by no more.
_MAX_PAUSE_S: Final = 1.0

# The pause after a failed delivery: the log may be full.
_RETRY_S: Final = 0.5


class Deliveries:
    """Delivers due messages while this member leads.

    Attributes:
        on_sooner: called when `deliver` should be called earlier than it has returned.
    """

    def __init__(self, parts: Parts) -> None:
        self._delays = parts.state[DELAYS]
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._sends = parts[SENDS]
        self._copies = parts[COPIES]
        self._changes = parts[TOPIC_CHANGES]
        self._disk = parts[FULL_DISK]
        self._led_term = parts.led_term
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._fetched: deque[Waiting] = deque()  # due, the oldest first
        self._under_way: set[int] = set()  # positions; a new set for each term
        # Positions of messages whose topic is being deleted, and when to try them again.
        self._deferred: set[int] = set()
        self._deferred_until = 0.0
        self._move_before = 0  # messages at smaller positions have to move
        self._not_before = 0.0  # on the monotonic clock
        self._asleep_until_ms = 0
        self.on_sooner: Callable[[], None] = lambda: None

    def begin_term(self) -> None:
        self._under_way = set()
        self._deferred.clear()
        self._fetched.clear()
        self._not_before = 0.0
        self.on_sooner()

    def applied(self, _folded: object) -> None:
        """Call `on_sooner` if a message was added that is due earlier than the next delivery."""
        waiting = self._delays.waiting
        if waiting.earliest_added_ms < self._asleep_until_ms:
            self.on_sooner()

    def claim(self, position: int) -> Then | None:
        """Keep a message from being delivered, for a recall.

        Returns the callback for the outcome; None if its delivery is in flight.
        """
        if position in self._under_way:
            return None
        return self._began(position)

    def move_before(self, position: int) -> None:
        """Move waiting messages before a log position to the log's end, so that retention can drop
        them.
        """
        self._move_before = position
        self.on_sooner()

    def deliver(self) -> float:
        """Propose copies of due messages; return after how many seconds to call it again."""
        self._asleep_until_ms = 0
        if self._led_term() is None or not self._log.is_ready_leader:
            return _MAX_PAUSE_S
        if self._deferred and self._clock() >= self._deferred_until:
            self._deferred.clear()
        pause_s = self._not_before - self._clock()
        if pause_s > 0:
            return pause_s
        try:
            if self._propose_moves() or self._propose_due():
                return 0.0
        finally:
            self._sends.flush()
        return self._pause()

    def _pause(self) -> float:
        """Return for how long nothing is due. When too much is in flight, its end calls
        `on_sooner`.
        """
        now_ms = self._wall_clock_ms()
        self._asleep_until_ms = now_ms + round(_MAX_PAUSE_S * 1000)
        self._delays.waiting.earliest_added_ms = self._asleep_until_ms
        next_ms = self._delays.waiting.next_due_ms(now_ms)
        if next_ms is not None:
            self._asleep_until_ms = min(self._asleep_until_ms, next_ms)
        return max(0, self._asleep_until_ms - now_ms) / 1000

    # --- due messages -------------------------------------------------------------------------

    def _propose_due(self) -> bool:
        """Propose some copies; return whether there may be more to propose at once."""
        if self._disk.is_refusing:
            return False
        if not self._fetched:
            # A member that was given a snapshot may lack the messages before it.
            self._fetched += self._delays.waiting.due(
                self._wall_clock_ms(),
                self._log.begin_position,
                self._busy + _FETCHED_MESSAGES,
            )
        messages = size = 0
        while self._fetched and self._has_room(messages, size):
            due = self._fetched.popleft()
            if not self._is_busy(due.position) and due.position in self._delays.waiting:
                self._call(self._propose, due)
                messages += 1
                size += due.size
        return messages > 0

    @property
    def _busy(self) -> int:
        return len(self._under_way) + len(self._deferred)

    def _is_busy(self, position: int) -> bool:
        return position in self._under_way or position in self._deferred

    def _call(self, step: Callable[[Waiting], None], row: Waiting) -> None:
        done = self._began(row.position)
        self._copies.attempt(_WHAT, row.position, _stand_in(row), done, lambda: step(row))

    def _has_room(self, messages: int, size: int) -> bool:
        return (
            messages < _PASS_MESSAGES
            and size < _PASS_BYTES
            and len(self._under_way) < _UNDER_WAY_MESSAGES
            and len(self._deferred) < _DEFERRED_MESSAGES
            and self._not_before <= self._clock()
        )

    def _propose(self, due: Waiting) -> None:
        record = self._read(due)
        if record is None:
            return
        pairs = record.property_map()
        topic = pairs[REAL_TOPIC]
        # The topic may have fewer queues by now.
        queue_id = kept_queue_id(pairs) % self._topics.configs[topic].write_queue_count
        record.properties = edit_properties(record.properties, {}, DELAY_NAMES)
        self._store(topic, queue_id, record, due, Deliver(due.position))

    def _read(self, row: Waiting) -> MessageRecord | None:
        """Read a waiting message; None if its topic was deleted, so that it is dropped, or is being
        deleted, so that it is deferred.

        A message is checked before a move as before a delivery: a moved one lies after the creation
        of a new topic of the name, and would count as one of it.
        """
        record, _end = decode_record(self._log.read_bytes(row.position, row.size))
        topic = record.property_map()[REAL_TOPIC]
        if self._changes.is_deleting(topic):
            if not self._deferred:
                self._deferred_until = self._clock() + _RETRY_S
            self._under_way.discard(row.position)
            self._deferred.add(row.position)
            return None
        if self._changes.is_same(topic, row.position):
            return record
        _log.info("a delayed message of topic %s is dropped: the topic was deleted", quoted(topic))
        submit_commands(self._log, [DropDelayed(row.position)], self._began(row.position))
        return None

    # --- messages that retention drops --------------------------------------------------------

    def _propose_moves(self) -> bool:
        """Propose some moves; return whether there may be more."""
        if not self._move_before:
            return False
        rows = self._delays.waiting.before(self._move_before, self._busy + _FETCHED_MESSAGES)
        if not rows:
            self._move_before = 0
            return False
        messages = size = 0
        for row in rows:
            if not self._has_room(messages, size):
                break
            if self._is_busy(row.position) or row.position < self._log.begin_position:
                continue
            self._call(self._move, row)
            messages += 1
            size += row.size
        return messages > 0

    def _move(self, row: Waiting) -> None:
        record = self._read(row)
        if record is not None:
            self._store(record.topic, record.queue_id, record, row, MoveDelayed(row.position))

    # --- the log ------------------------------------------------------------------------------

    def _store(
        self, topic: str, queue_id: int, record: MessageRecord, row: Waiting, command: LogCommand
    ) -> None:
        done = self._began(row.position)
        copy = Copy(_WHAT, topic, queue_id, record, done, _stand_in(row))
        copy.attach = lambda _record: command
        self._copies.store(copy)

    def _began(self, position: int) -> Then:
        """Note that the end of a message's wait is in flight; return the callback for
        the outcome.
        """
        under_way = self._under_way
        under_way.add(position)

        def done(refusal: RequestRefused | None) -> None:
            under_way.discard(position)
            if under_way is not self._under_way:
                return  # of an earlier term
            if refusal is not None:
                self._failed(refusal)
            elif len(under_way) == _UNDER_WAY_MESSAGES // 2:
                self.on_sooner()

        return done

    def _failed(self, refusal: RequestRefused) -> None:
        """Start again with the oldest message, after a pause."""
        _log.debug("a delayed message waits on: %s", quoted(refusal.remark))
        self._fetched.clear()
        self._not_before = self._clock() + _RETRY_S
        self.on_sooner()


def _stand_in(row: Waiting) -> StandIn:
    return StandIn(Deliver(row.position), DropDelayed(row.position))


DELIVERIES: Final = Shared("deliveries", Deliveries)
