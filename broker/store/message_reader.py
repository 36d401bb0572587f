"""Reads messages by queue offset, by time and by log position: slices of the log, not decoded.

Only applied messages can be read: every lookup uses a consume queue.
"""

import struct
from collections.abc import Collection, Mapping, Sequence, Set
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from broker.filters.condition import Condition
from broker.limits import MAX_PULL_BYTES, MAX_PULL_MESSAGES, MAX_PULL_SCANNED_UNITS
from broker.log.folded import Arrivals
from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.messages.record_facts import (
    SMALLEST_RECORD_BYTES,
    STORE_TIMESTAMP_AT,
    UNIT,
    RecordFacts,
    properties_run,
    read_record_facts,
    read_without_body,
)
from broker.messages.state import MESSAGES
from broker.serving.parts import Shared
from broker.serving.queues import Queues
from broker.store.record_runs import read_records
from dledger import HEADER_BYTES, OutsideLog
from remoting.message.message_id import parse_message_id
from remoting.message.properties import decode_some
from remoting.message.record import MESSAGE_MAGIC
from remoting.wire.errors import RemotingError

# Limits the evaluation of a condition in one pull, in characters that the condition reads: some
# 5 ms. Then the pull is answered with the messages found so far.
MAX_CONDITION_COST: Final = 2 * 1024 * 1024

# Reading the properties of a message takes as long as evaluating so many characters.
_MESSAGE_COST: Final = 2048

# A queue is young while it has all its messages, and the first lies so close to the log's end.
# RocketMQ's limit is 40 % of the machine's memory.
YOUNG_QUEUE_BYTES: Final = 1024 * 1024 * 1024

_SIZE_MAGIC: Final = struct.Struct(">iI")
_TIME: Final = struct.Struct(">q")


class Found(Enum):
    """The outcome of a read."""

    MESSAGES = "messages"
    NOTHING_NEW = "nothing new"  # the offset is the queue's end
    FILTERED = "filtered"  # no message is wanted
    TOO_SMALL = "too small"  # the queue begins after the offset
    TOO_LARGE = "too large"  # the queue ends before the offset


class ReadResult(NamedTuple):
    """Messages of one queue.

    Attributes:
        messages: concatenated records.
        next_offset: where the next read continues.
        begin: the offset of the queue's first message.
        end: the offset of the queue's next message.
    """

    found: Found
    messages: bytes
    message_count: int
    next_offset: int
    begin: int
    end: int


class MessageReader:
    """Reads applied messages."""

    def __init__(self, state: BrokerState, queues: Queues, log: Log) -> None:
        self._state = state
        self._messages = state[MESSAGES]
        self._queues = queues
        self._log = log

    def end(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's next message; the topic's first offset if it never had
        one.
        """
        return self._queues.end(topic, queue_id) or self.first(topic)

    def begin(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's first message; its end if all were dropped
        with the log.
        """
        begin = self._queues.begin(topic, queue_id, self._kept_position)
        return begin or self.first(topic)

    def first(self, topic: str) -> int:
        """Return the offset at which the queues of a topic begin: 0, unless its name was used
        before.
        """
        return self._messages.begins.get(topic, 0)

    @property
    def _kept_position(self) -> int:
        """The log position before which nothing can be read.

        Usually retention determines it. A member that was given a snapshot because it lagged far
        behind has less of the log.
        """
        kept, begin = self._messages.kept_position, self._log.begin_position
        return kept if kept > begin else begin

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        codes: Collection[int] | None = None,
        condition: Condition | None = None,
    ) -> ReadResult:
        """Read wanted messages from `offset` on: at least one if there is one within the scan
        limit.

        Limits of RocketMQ: `max_messages`, 256 KiB except for a single larger message, and 800
        index units scanned. With a condition, `MAX_CONDITION_COST` counts as well.

        Args:
            topic: of the queue.
            queue_id: the queue.
            offset: of the first message.
            max_messages: the largest number of messages.
            codes: hashes of the wanted tags; None for all messages.
            condition: on the properties of messages; None for all messages.
        """
        begin, end = self.begin(topic, queue_id), self.end(topic, queue_id)
        if offset == end:
            return ReadResult(Found.NOTHING_NEW, b"", 0, offset, begin, end)
        if offset < begin:
            return ReadResult(Found.TOO_SMALL, b"", 0, begin, begin, end)
        if offset > end:
            return ReadResult(Found.TOO_LARGE, b"", 0, end, begin, end)
        wants_all = codes is None and condition is None
        scanned = max_messages if wants_all else MAX_PULL_SCANNED_UNITS
        units = self._queues.read(topic, queue_id, offset, scanned)
        if condition is None:
            places, sizes, next_offset = choose(units, offset, max_messages, codes)
            count = len(places)
            pieces = read_records(self._log.read_bytes, places, sizes)
        else:
            pieces, next_offset = self._met(units, offset, max_messages, codes, condition)
            count = len(pieces)
        if not count:
            return ReadResult(Found.FILTERED, b"", 0, next_offset, begin, end)
        read = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return ReadResult(Found.MESSAGES, bytes(read), count, next_offset, begin, end)

    def arrived(
        self,
        topic: str,
        queue_id: int,
        arrivals: Arrivals,
        max_messages: int,
        codes: Set[int] | None = None,
    ) -> ReadResult | None:
        """Return what `read` would for new messages of a queue, without reading the log.

        None if they have to be read, because some are unwanted or they are too many.
        """
        first, count = arrivals.first_offset, len(arrivals.places)
        if not 0 < count <= max_messages or not (codes is None or codes >= set(arrivals.codes)):
            return None
        begin, end = self.begin(topic, queue_id), self.end(topic, queue_id)
        messages = b"".join(arrivals.records())
        if len(messages) > MAX_PULL_BYTES or not begin <= first or end != first + count:
            return None
        return ReadResult(Found.MESSAGES, messages, count, end, begin, end)

    def _met(
        self,
        units: bytes,
        offset: int,
        max_messages: int,
        codes: Collection[int] | None,
        condition: Condition,
    ) -> tuple[list[bytes | memoryview], int]:
        """Return the messages of a run of units that meet a condition, and the offset to continue
        at.
        """
        records: list[bytes | memoryview] = []
        size_sum = cost = 0
        next_offset = offset
        for place, size, tags_code in UNIT.iter_unpack(units):
            if codes is None or tags_code in codes:
                if records and (size_sum + size > MAX_PULL_BYTES or len(records) >= max_messages):
                    break
                properties = self._properties(place, size, condition.names)
                if condition.is_met(properties):
                    records.append(self._log.read_bytes(place, size))
                    size_sum += size
                cost += _MESSAGE_COST + condition.cost(properties)
            next_offset += 1
            if cost > MAX_CONDITION_COST:
                break
        return records, next_offset

    def _properties(self, place: int, size: int, names: Mapping[bytes, str]) -> dict[str, str]:
        record = read_without_body(self._log.read_bytes, place, size)
        return {} if record is None else decode_some(properties_run(record), names)

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Read units of a queue: position, size and hash of the tag; none if `offset` is before its
        beginning.
        """
        if offset < self.begin(topic, queue_id):
            return []
        return list(UNIT.iter_unpack(self._queues.read(topic, queue_id, offset, count)))

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return when the message at `offset` was stored; None if the queue does not hold it."""
        if offset < self.begin(topic, queue_id):
            return None
        units = self._queues.read(topic, queue_id, offset, 1)
        if not units:
            return None
        (stored,) = _TIME.unpack(
            self._log.read_bytes(UNIT.unpack(units)[0] + STORE_TIMESTAMP_AT, _TIME.size)
        )
        return int(stored)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first message stored at or after a time; the queue's end if there is none.

        Java 4 returns the nearest message instead, which may be older.
        """
        low, high = self.begin(topic, queue_id), self.end(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            stored = self.store_timestamp_ms(topic, queue_id, middle)
            if stored is not None and stored < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether a group without an offset starts with the first message, wherever it asks
        to.

        So a new group on a new topic misses nothing; clients rely on this rule of RocketMQ.
        """
        return (
            self.begin(topic, queue_id) == self.first(topic)
            and self.first_distance_bytes(topic, queue_id) <= YOUNG_QUEUE_BYTES
        )

    def first_distance_bytes(self, topic: str, queue_id: int) -> int:
        """Return how far the queue's first message lies before the applied end of the log; 0
        without one.
        """
        return self.distance_bytes(topic, queue_id, self.begin(topic, queue_id))

    def distance_bytes(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how far a message lies before the applied end of the log; 0 without one."""
        units = self._queues.read(topic, queue_id, offset, 1)
        return self._state.log_end - UNIT.unpack(units)[0] if units else 0

    def record_at(self, position: int) -> bytes | None:
        """Return the applied message whose record begins at a log position, or None."""
        outline = self.outline_at(position)
        return None if outline is None else self._log.read_bytes(position, outline.size)

    def record_named(self, message_id: str) -> bytes | None:
        """Return the applied message at the log position in an offset id, or None."""
        try:
            position = parse_message_id(message_id).physical_offset
        except RemotingError:
            return None
        return self.record_at(position)

    def outline_at(self, position: int) -> "Outline | None":
        """Return an applied message without its body, as `record_at`.

        A client chose the position, so the bytes there are not trusted until the consume queue of
        the apparent record points back to it.
        """
        first = self._kept_position + HEADER_BYTES
        if not first <= position <= self._state.log_end - SMALLEST_RECORD_BYTES:
            return None
        try:
            size, magic = _SIZE_MAGIC.unpack(self._log.read_bytes(position, _SIZE_MAGIC.size))
            if magic != MESSAGE_MAGIC or not (
                SMALLEST_RECORD_BYTES <= size <= self._state.log_end - position
            ):
                return None
            record = read_without_body(self._log.read_bytes, position, size)
        except OutsideLog:
            return None  # beyond the end of a segment
        facts = None if record is None else read_record_facts(record)
        if record is None or facts is None or facts.queue_offset < 0:
            return None
        units = self._queues.read(facts.topic, facts.queue_id, facts.queue_offset, 1)
        if not units or UNIT.unpack(units)[:2] != (position, size):
            return None
        return Outline(size, facts, record)


class Outline(NamedTuple):
    """A stored message without its body.

    Attributes:
        size: bytes of the stored record.
        facts: read from `record`, so their size is that of it.
        record: the record, without its body if it is long.
    """

    size: int
    facts: RecordFacts
    record: bytes


class Chosen(NamedTuple):
    """The messages of a run of units that a pull returns.

    Attributes:
        places: log position of each.
        sizes: bytes of each.
        next_offset: where the next read continues.
    """

    places: Sequence[int]
    sizes: Sequence[int]
    next_offset: int


def choose(units: bytes, offset: int, max_messages: int, codes: Collection[int] | None) -> Chosen:
    if codes is None:
        values = _units_struct(min(max_messages, len(units) // UNIT.size)).unpack_from(units)
        sizes = values[1::3]
        count = len(sizes)
        if sum(sizes) > MAX_PULL_BYTES:
            count = max(1, sum([so_far <= MAX_PULL_BYTES for so_far in accumulate(sizes)]))
        return Chosen(values[: 3 * count : 3], sizes[:count], offset + count)
    places, sizes_of_chosen = list[int](), list[int]()
    size_sum = 0
    for place, size, code in UNIT.iter_unpack(units):
        if code in codes:
            if places and (size_sum + size > MAX_PULL_BYTES or len(places) >= max_messages):
                break
            places.append(place)
            sizes_of_chosen.append(size)
            size_sum += size
        offset += 1
    return Chosen(places, sizes_of_chosen, offset)


@lru_cache(maxsize=MAX_PULL_MESSAGES + 1)
def _units_struct(count: int) -> struct.Struct:
    return struct.Struct(">" + "qiq" * count)


MESSAGE_READER: Final = Shared(
    "message reader",
    lambda parts: MessageReader(parts.state, parts.queues, parts.log),
)
