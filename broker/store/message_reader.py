"""Messages by queue offset, by time and by their place in the log: slices of the log, not decoded.

Only what is applied can be read here: every lookup goes through a consume queue.
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

# What one pull may spend on judging messages by a condition, in characters that the condition looks
# at: some 5 ms. The pull is answered then with what it has.
MAX_CONDITION_COST: Final = 2 * 1024 * 1024

# What a message costs besides: to read its properties takes as long as to look at so many.
_MESSAGE_COST: Final = 2048

# A queue is young while all its messages are there, and the first lies so close to the log's end.
# RocketMQ's measure is 40 % of the machine's memory.
YOUNG_QUEUE_BYTES: Final = 1024 * 1024 * 1024

_SIZE_MAGIC: Final = struct.Struct(">iI")
_TIME: Final = struct.Struct(">q")


class Found(Enum):
    """How a read ended."""

    MESSAGES = "messages"
    NOTHING_NEW = "nothing new"  # the offset is the queue's end
    FILTERED = "filtered"  # messages are there, none is wanted
    TOO_SMALL = "too small"  # the queue begins behind the offset
    TOO_LARGE = "too large"  # the queue ends before the offset


class ReadResult(NamedTuple):
    """Messages of one queue.

    Attributes:
        found: how it ended.
        messages: records, one behind the other.
        message_count: how many.
        next_offset: where to go on.
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
    """Reads what is applied."""

    def __init__(self, state: BrokerState, queues: Queues, log: Log) -> None:
        self._state = state
        self._messages = state[MESSAGES]
        self._queues = queues
        self._log = log

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message; where the topic begins if it never had one."""
        return self._queues.end(topic, queue_id) or self.first(topic)

    def begin(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's first message; its end when all were dropped with the log."""
        begin = self._queues.begin(topic, queue_id, self._kept_position)
        return begin or self.first(topic)

    def first(self, topic: str) -> int:
        """The offset that the queues of a topic begin with: 0, unless its name was used before."""
        return self._messages.begins.get(topic, 0)

    @property
    def _kept_position(self) -> int:
        """What lies before this position of the log cannot be read.

        As a rule that is what retention says. A member that was so far behind that it was given a
        snapshot has less than that.
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
        """Wanted messages from `offset` on: at least one if there is one within the scan limit.

        Limits of RocketMQ: `max_messages`, 256 KiB but for a single larger message, and 800 index
        units looked at. With a condition, `MAX_CONDITION_COST` counts as well.

        Args:
            topic: of the queue.
            queue_id: the queue.
            offset: of the first message.
            max_messages: how many are wanted at most.
            codes: the hashes of wanted tags; None wants every message.
            condition: what the properties of a message must meet; None wants every message.
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
        """What `read` gives at the offset of the first message that has just come, without a read.

        None: it has to be read, because not all of what came is wanted, or it is too much.
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
        """The messages of a run of units that meet a condition, and where to go on."""
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
        """Some properties of a message, by their names in the record; its body is not read."""
        record = read_without_body(self._log.read_bytes, place, size)
        return {} if record is None else decode_some(properties_run(record), names)

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Index units of a queue: position, size and hash of the tag; none before its beginning."""
        if offset < self.begin(topic, queue_id):
            return []
        return list(UNIT.iter_unpack(self._queues.read(topic, queue_id, offset, count)))

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message at `offset` was stored; None when the queue does not hold it."""
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
        """The first message stored at or after a time; the queue's end when there is none.

        Java 4 answers the nearest message instead, which may lie before the asked time.
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
        """Whether a group without an offset starts with the first message, wherever it asks to.

        So a new group on a new topic misses nothing; clients lean on this rule of RocketMQ.
        """
        return (
            self.begin(topic, queue_id) == self.first(topic)
            and self.first_distance_bytes(topic, queue_id) <= YOUNG_QUEUE_BYTES
        )

    def first_distance_bytes(self, topic: str, queue_id: int) -> int:
        """How far the queue's first message lies behind the log's applied end; 0 without one."""
        return self.distance_bytes(topic, queue_id, self.begin(topic, queue_id))

    def distance_bytes(self, topic: str, queue_id: int, offset: int) -> int:
        """How far a message lies behind the log's applied end; 0 without one."""
        units = self._queues.read(topic, queue_id, offset, 1)
        return self._state.log_end - UNIT.unpack(units)[0] if units else 0

    def record_at(self, position: int) -> bytes | None:
        """The applied message whose record begins at a position of the log, or None."""
        outline = self.outline_at(position)
        return None if outline is None else self._log.read_bytes(position, outline.size)

    def record_named(self, message_id: str) -> bytes | None:
        """The applied message that an offset id names, by its position in it; or None."""
        try:
            position = parse_message_id(message_id).physical_offset
        except RemotingError:
            return None
        return self.record_at(position)

    def outline_at(self, position: int) -> "Outline | None":
        """What an applied message says of itself besides its body, as `record_at`.

        The position is a client's word, so nothing there is believed until the consume queue of
        what seems to be a record points back to it.
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
            return None  # the end of a segment lies within
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
        size: bytes of its record.
        facts: the facts of it, but for its size.
        record: the record without its body, if that is long.
    """

    size: int
    facts: RecordFacts
    record: bytes


class Chosen(NamedTuple):
    """The messages of a run of units that are sent.

    Attributes:
        places: where each lies in the log.
        sizes: the bytes of each.
        next_offset: where to go on in the queue.
    """

    places: Sequence[int]
    sizes: Sequence[int]
    next_offset: int


def choose(units: bytes, offset: int, max_messages: int, codes: Collection[int] | None) -> Chosen:
    """Which messages of a run of units are sent, the first of which is at `offset`."""
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
    """Of so many units at once."""
    return struct.Struct(">" + "qiq" * count)


MESSAGE_READER: Final = Shared(
    "message reader",
    lambda parts: MessageReader(parts.state, parts.queues, parts.log),
)
