"""Puts the keys of applied messages into the index, in the order in which they lie in the log.

What is applied is not slowed down by it: the index follows some way behind, and is told by the
consume queues which of them have grown. So a missing index is made in the same way as the next
entry of a whole one.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.messages.record_facts import (
    SHORT_RECORD_BYTES,
    STORE_TIMESTAMP_AT,
    UNIT,
    read_without_body,
)
from broker.messages.state import MESSAGES
from broker.query.keys import keys_of
from broker.store.key_index import KeyIndex
from dledger import OutsideLog

_TIME_END: Final = STORE_TIMESTAMP_AT + 8

# Units of a consume queue that are read at once.
_UNITS_AT_ONCE: Final = 64

# Short records are read many at once.
_RUN_BYTES: Final = 128 * 1024


class GrowingQueues(Protocol):
    """The consume queues. `broker.store.consume_queues.ConsumeQueues` is them."""

    def end(self, topic: str, queue_id: int) -> int: ...

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`."""
        ...

    def take_grown(self) -> set[tuple[str, int]]:
        """The queues that messages came to since the last call."""
        ...

    def all_grown(self) -> None:
        """Have `take_grown` tell all queues."""
        ...


class _Unit(NamedTuple):
    """A message to index; they are sorted by their places."""

    place: int
    size: int
    topic: str

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.place + self.size


class KeyIndexing:
    """Makes the index of one member.

    Args:
        queues: the consume queues.
        index: the index.
    """

    def __init__(
        self, state: BrokerState, queues: GrowingQueues, log: Log, index: KeyIndex
    ) -> None:
        self._state = state
        self._messages = state[MESSAGES]
        self._queues = queues
        self._log = log
        self._index = index
        self._sweep: Iterator[_Unit | None] | None = None
        self._sweep_end = 0

    @property
    def behind_bytes(self) -> int:
        """How much of the applied log is not known to be indexed."""
        return max(0, self._state.log_end - self._index.covered)

    @property
    def is_sweeping(self) -> bool:
        """Whether messages are known that are not indexed."""
        return self._sweep is not None

    def begin(self) -> None:
        """The index was opened: go on from where it is, with all queues."""
        self._sweep = None
        self._queues.all_grown()

    def step(self, units: int) -> bool:
        """Index up to so many messages; return whether there is more to do. Raises DiskFailed."""
        if self._sweep is None:
            if self._index.covered >= self._state.log_end:
                return False
            self._sweep = self._grown_units()
        found: list[_Unit] = []
        for _ in range(units):
            try:
                unit = next(self._sweep)
            except StopIteration:
                self._sweep = None
                break
            if unit is not None:
                found.append(unit)
        for run in _runs(found):
            self._put(run)
            self._index.covered = max(self._index.covered, run[-1].end)
        self._index.flush()
        if self._sweep is None:
            self._index.covered = max(self._index.covered, self._sweep_end)
        return True

    def _grown_units(self) -> Iterator[_Unit | None]:
        """The messages up to now that are not indexed; None between them where it may pause."""
        # All messages before it lie in the queues that have grown.
        end = self._sweep_end = self._state.log_end
        begin = max(self._index.covered, self._messages.kept_position)
        sources = []
        for topic, queue_id in self._queues.take_grown():
            source = self._units(topic, queue_id, begin, end)
            first = next(source, None)
            if first is not None:
                sources.append(_followed(first, source))
            yield None
        yield from heapq.merge(*sources)

    def _units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[_Unit]:
        """The messages of a queue between two positions of the log."""
        at = self._first(topic, queue_id, begin)
        last = begin - 1
        while units := self._queues.read(topic, queue_id, at, _UNITS_AT_ONCE):
            for place, size, _tag in UNIT.iter_unpack(units):
                if not last < place < end:
                    return  # the topic was deleted, and made again
                yield _Unit(place, size, topic)
                last = place
            at += len(units) // UNIT.size

    def _first(self, topic: str, queue_id: int, begin: int) -> int:
        """The offset of a queue's first message at or behind a position of the log.

        Looked for from the end on, where it mostly is.
        """
        high = self._queues.end(topic, queue_id)
        step = 1
        low = high - 1
        while low >= 0 and self._place(topic, queue_id, low) >= begin:
            high, step = low, step * 2
            low -= step
        low = max(low, -1)
        while high - low > 1:
            middle = (low + high) // 2
            if self._place(topic, queue_id, middle) >= begin:
                high = middle
            else:
                low = middle
        return high

    def _place(self, topic: str, queue_id: int, offset: int) -> int:
        unit = self._queues.read(topic, queue_id, offset, 1)
        return UNIT.unpack(unit)[0] if unit else -1

    def _put(self, run: Sequence[_Unit]) -> None:
        try:
            records = self._records(run)
        except OutsideLog:
            if len(run) > 1:  # the end of a segment lies within
                for unit in run:
                    self._put([unit])
            return  # else retention was faster
        for unit, record in zip(run, records, strict=False):
            time_ms = int.from_bytes(record[STORE_TIMESTAMP_AT:_TIME_END], "big")
            self._index.put(unit.topic, keys_of(record), unit.place, time_ms)

    def _records(self, run: Sequence[_Unit]) -> Sequence[bytes]:
        """The records of a run. A long one has an empty body, and is the same but for that."""
        begin, size = run[0].place, run[0].size
        if size <= SHORT_RECORD_BYTES:
            read = self._log.read_bytes(begin, run[-1].end - begin)
            return [read[unit.place - begin : unit.end - begin] for unit in run]
        record = read_without_body(self._log.read_bytes, begin, size)
        return [] if record is None else [record]


def _runs(units: Sequence[_Unit]) -> Iterator[Sequence[_Unit]]:
    """Short records that lie near each other together, and each long one by itself."""
    run: list[_Unit] = []
    for unit in units:
        is_short = unit.size <= SHORT_RECORD_BYTES
        if run and not (is_short and unit.end - run[0].place <= _RUN_BYTES):
            yield run
            run = []
        run.append(unit)
        if not is_short:
            yield run
            run = []
    if run:
        yield run


def _followed(first: _Unit, rest: Iterator[_Unit]) -> Iterator[_Unit]:
    yield first
    yield from rest
