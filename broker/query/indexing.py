"""Puts the keys of applied messages into the index, in the order of the log.

Applying is not slowed down: the index lags behind, and the consume queues tell which of them have
grown. So a missing index is rebuilt in the same way as it is extended.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

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
from broker.store.consume_queues import ConsumeQueues
from broker.store.key_index import KeyIndex
from dledger import OutsideLog

_TIME_END: Final = STORE_TIMESTAMP_AT + 8

# Units of a consume queue that are read at once.
_UNITS_AT_ONCE: Final = 64

# Short records are read many at once.
_RUN_BYTES: Final = 128 * 1024


class _Unit(NamedTuple):
    """A message to index; sorted by position."""

    place: int
    size: int
    topic: str

    @property
    def end(self) -> int:
        return self.place + self.size


class KeyIndexing:
    """Fills the index of one member."""

    def __init__(
        self, state: BrokerState, queues: ConsumeQueues, log: Log, index: KeyIndex
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
        """How much of the applied log may not be indexed."""
        return max(0, self._state.log_end - self._index.covered)

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep over new messages is under way."""
        return self._sweep is not None

    def begin(self) -> None:
        """Continue where the index is after it was opened, with all queues."""
        self._sweep = None
        self._queues.all_grown()

    def step(self, units: int) -> bool:
        """Index up to `units` messages; return whether there is more to do. Raises DiskFailed."""
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
        """Yield the messages up to now that are not indexed, and None at further points
        to pause.
        """
        # All messages before it are in the queues that have grown.
        end = self._sweep_end = self._state.log_end
        begin = max(self._index.covered, self._messages.kept_position)
        sources = []
        for topic, queue_id in self._queues.take_grown():
            source = self._units(topic, queue_id, begin, end)
            first = next(source, None)
            if first is not None:
                sources.append(chain((first,), source))
            yield None
        yield from heapq.merge(*sources)

    def _units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[_Unit]:
        at = self._first(topic, queue_id, begin)
        last = begin - 1
        while units := self._queues.read(topic, queue_id, at, _UNITS_AT_ONCE):
            for place, size, _tag in UNIT.iter_unpack(units):
                if not last < place < end:
                    return  # the topic was deleted and created again
                yield _Unit(place, size, topic)
                last = place
            at += len(units) // UNIT.size

    def _first(self, topic: str, queue_id: int, begin: int) -> int:
        """Return the offset of a queue's first message at or after a log position.

        The search starts at the queue's end, because it usually is close to it.
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
            if len(run) > 1:  # the run crosses the end of a segment
                for unit in run:
                    self._put([unit])
            return  # retention has dropped it
        for unit, record in zip(run, records, strict=False):
            time_ms = int.from_bytes(record[STORE_TIMESTAMP_AT:_TIME_END], "big")
            self._index.put(unit.topic, keys_of(record), unit.place, time_ms)

    def _records(self, run: Sequence[_Unit]) -> Sequence[bytes]:
        """Read the records of a run; a long one with an empty body."""
        begin, size = run[0].place, run[0].size
        if size <= SHORT_RECORD_BYTES:
            read = self._log.read_bytes(begin, run[-1].end - begin)
            return [read[unit.place - begin : unit.end - begin] for unit in run]
        record = read_without_body(self._log.read_bytes, begin, size)
        return [] if record is None else [record]


def _runs(units: Sequence[_Unit]) -> Iterator[Sequence[_Unit]]:
    """Group neighbouring short records; each long one is a run of its own."""
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
