"""Chooses the messages that a pop of a queue is given: those due again, or else the next ones."""

import heapq
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.limits import MAX_PULL_BYTES
from broker.offsets.state import OFFSETS
from broker.pop.limits import MAX_IN_FLIGHT, MAX_IN_FLIGHT_PER_QUEUE, MAX_QUEUES
from broker.pop.request import PopRequest
from broker.pop.state import POPS, InFlight, PopQueue, QueueKey
from broker.pulls.message_filter import MessageFilter
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER, Found

_SIZE: Final = struct.Struct(">i")
_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20

_NEVER: Final = 1 << 62

# The undeliverable messages that are kept until they are taken; others are found again.
_MAX_UNDELIVERABLE: Final = 64

# Due queues that one step takes.
_QUEUES_A_STEP: Final = 16

# The heap is rebuilt when it has more outdated times than this, plus twice the valid ones.
_STALE: Final = 1024


class Choice(NamedTuple):
    """The contents of a pop to propose.

    Attributes:
        first: the queue's next offset before the pop.
        next: the queue's next offset after it.
        offsets: the given messages; empty if only the next offset moves.
        begins: whether the group begins at `first`.
        popped_ms: when they are given, at the earliest.
        rest: the number of messages after `next`.
    """

    first: int
    next: int
    offsets: tuple[int, ...]
    begins: bool
    popped_ms: int
    rest: int


class Undeliverable(NamedTuple):
    """A message that cannot be given again.

    `is_dead_letter`: whether it failed too often; else retention has dropped it.
    """

    key: QueueKey
    offset: int
    flight: InFlight
    is_dead_letter: bool


class Chooser:
    """Chooses messages on the leader.

    `undeliverable`: messages found that cannot be given again.
    """

    def __init__(self, parts: Parts) -> None:
        self._pops = parts.state[POPS]
        self._offsets = parts.state[OFFSETS]
        self._groups = parts.state[GROUPS]
        self._reader = parts[MESSAGE_READER]
        # No message of a queue is due before this time; unknown for other queues.
        self._soonest: dict[QueueKey, int] = {}
        # When to try a queue again for which a choice found nothing; and the same as a heap.
        self._wakes: dict[QueueKey, int] = {}
        self._times: list[tuple[int, QueueKey]] = []
        self.undeliverable: list[Undeliverable] = []

    def begin_term(self) -> None:
        self._soonest.clear()
        self._wakes.clear()
        self._times.clear()
        self.undeliverable.clear()

    def shown(self, key: QueueKey, visible_ms: int) -> None:
        if visible_ms < self._soonest.get(key, 0):
            self._soonest[key] = visible_ms

    def take_due(self, now_ms: int) -> list[QueueKey]:
        """Take a few queues for which choices found nothing, and that may have due messages now."""
        due: list[QueueKey] = []
        while self._times and self._times[0][0] <= now_ms and len(due) < _QUEUES_A_STEP:
            time_ms, key = heapq.heappop(self._times)
            if self._wakes.get(key) == time_ms:
                del self._wakes[key]
                due.append(key)
        return due

    @property
    def has_too_many_queues(self) -> bool:
        return not self._pops.queues.has_room(MAX_QUEUES)

    def choose(
        self, key: QueueKey, request: PopRequest, wanted: MessageFilter, now_ms: int
    ) -> Choice | None:
        """Choose what a pop is given of a queue, or None."""
        _group, topic, queue_id = key
        queue = self._pops.queues.get(key)
        begin, end = self._reader.begin(topic, queue_id), self._reader.end(topic, queue_id)
        moved_to = self._offsets.reset(*key) if self._offsets.resets else None
        if moved_to is None and queue is not None:
            # Members of the group that pull have consumed more than was popped.
            committed = self._offsets.committed(*key)
            if committed is not None and committed > queue.next_offset:
                moved_to = committed
        if queue is None or moved_to is not None:
            if queue is None and self.has_too_many_queues:
                return None
            at = self._begin(key, request, begin, end) if moved_to is None else moved_to
            queue = PopQueue(min(max(at, begin), end))
            begins = True
        else:
            begins = False
        if request.is_ordered and queue.in_flight:
            return self._chosen_in_order(key, queue, request, wanted, now_ms, begin, end)
        if due := self._due(key, queue, request.max_messages, now_ms):
            next_offset = queue.next_offset
            return Choice(next_offset, next_offset, due, False, now_ms, end - next_offset)
        chosen = self._chosen_next(key, queue, request.max_messages, wanted, begin, end)
        if chosen is None:
            # A group that begins with the queue's end begins now.
            if not begins or (moved_to is None and not request.from_end):
                return None
            chosen = (), queue.next_offset
        offsets, next_offset = chosen
        first = queue.next_offset
        return Choice(first, next_offset, offsets, begins, now_ms, end - next_offset)

    def _begin(self, key: QueueKey, request: PopRequest, begin: int, end: int) -> int:
        """Return the offset at which a group begins that never popped from a queue."""
        committed = self._offsets.committed(*key)
        if committed is not None:
            return committed
        _group, topic, queue_id = key
        return end if request.from_end and not self._reader.is_young(topic, queue_id) else begin

    def _chosen_in_order(
        self,
        key: QueueKey,
        queue: PopQueue,
        request: PopRequest,
        wanted: MessageFilter,
        now_ms: int,
        begin: int,
        end: int,
    ) -> Choice | None:
        """Choose all messages in flight, if they are due or requested again; then new ones."""
        in_flight = queue.in_flight
        is_repeated = bool(request.attempt_id) and request.attempt_id == queue.attempt_id
        if not is_repeated:
            later = [one.visible_ms for one in in_flight.values() if one.visible_ms > now_ms]
            if later:
                self._wake_at(key, min(later))
                return None
        offsets = tuple(self._readable(key, in_flight.items(), request.max_messages))
        if not offsets:
            return None
        popped_ms = max(now_ms, 1 + max(in_flight[offset].popped_ms for offset in offsets))
        first = next_offset = queue.next_offset
        room = request.max_messages - len(offsets)
        if room and not is_repeated and len(offsets) == len(in_flight):
            new = self._chosen_next(key, queue, room, wanted, begin, end)
            if new is not None:
                offsets, next_offset = offsets + new[0], new[1]
        return Choice(first, next_offset, offsets, False, popped_ms, end - next_offset)

    def _due(self, key: QueueKey, queue: PopQueue, most: int, now_ms: int) -> tuple[int, ...]:
        soonest = self._soonest.get(key, 0)
        if soonest > now_ms:
            self._wake_at(key, soonest)
            return ()
        soonest = _NEVER
        is_something_due = False

        def due() -> Iterator[tuple[int, InFlight]]:
            nonlocal soonest, is_something_due
            for offset, flight in queue.in_flight.items():
                if flight.is_settled:
                    continue  # it waits for an earlier message
                if flight.visible_ms <= now_ms:
                    is_something_due = True
                    yield offset, flight
                elif flight.visible_ms < soonest:
                    soonest = flight.visible_ms

        offsets = tuple(self._readable(key, due(), most))
        if not is_something_due:
            self._soonest[key] = soonest
            self._wake_at(key, soonest)
        return offsets

    def _wake_at(self, key: QueueKey, time_ms: int) -> None:
        """Note that no message of a queue is due before a time."""
        if time_ms >= self._wakes.get(key, _NEVER):
            return
        self._wakes[key] = time_ms
        heapq.heappush(self._times, (time_ms, key))
        if len(self._times) > 2 * len(self._wakes) + _STALE:
            self._times = [(time, key) for key, time in self._wakes.items()]
            heapq.heapify(self._times)

    def _readable(
        self, key: QueueKey, in_flight: Iterable[tuple[int, InFlight]], most: int
    ) -> Iterator[int]:
        """Yield the first of these messages, as far as they fit an answer."""
        group, topic, queue_id = key
        allowed = self._groups.configs.get(group, ConsumerGroup(group)).retry_max_times
        begin = self._reader.begin(topic, queue_id)
        count = size = 0
        for offset, flight in in_flight:
            is_dead_letter = flight.attempts - flight.behind > allowed
            if flight.is_settled:
                if is_dead_letter or offset < begin:
                    continue  # it was acknowledged, and is done with an earlier one
            elif is_dead_letter or offset < begin:
                if len(self.undeliverable) < _MAX_UNDELIVERABLE:
                    self.undeliverable.append(
                        Undeliverable(key, offset, flight, is_dead_letter and offset >= begin)
                    )
                continue
            found = self._reader.read(topic, queue_id, offset, 1)
            if found.found is not Found.MESSAGES:
                continue  # it cannot be read now
            size += len(found.messages)
            if count and size > MAX_PULL_BYTES:
                return
            yield offset
            count += 1
            if count == most:
                return

    def _chosen_next(
        self,
        key: QueueKey,
        queue: PopQueue,
        most: int,
        wanted: MessageFilter,
        begin: int,
        end: int,
    ) -> tuple[tuple[int, ...], int] | None:
        """Choose messages that were never given; return them and the queue's next offset; None for
        nothing.
        """
        _group, topic, queue_id = key
        at = max(queue.next_offset, begin)
        room = min(
            MAX_IN_FLIGHT_PER_QUEUE - len(queue.in_flight),
            MAX_IN_FLIGHT - self._pops.in_flight_count,
        )
        if at >= end or room <= 0:
            return None
        found = self._reader.read(
            topic,
            queue_id,
            at,
            min(most, room),
            wanted.codes,
            wanted.condition,
        )
        if found.found is Found.MESSAGES:
            return tuple(_offsets(found.messages)), found.next_offset
        return ((), found.next_offset) if found.found is Found.FILTERED else None


def _offsets(records: bytes) -> Iterator[int]:
    at = 0
    while at < len(records):
        yield _QUEUE_OFFSET.unpack_from(records, at + _QUEUE_OFFSET_AT)[0]
        at += _SIZE.unpack_from(records, at)[0]
