"""Messages of one queue, from the pull that fetched them to the listener's success."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dledger_mq.received_message import ReceivedMessage

# RocketMQ's flow control of one queue: pullThresholdForQueue and pullThresholdSizeForQueue.
MAX_CACHED_MESSAGES: Final = 1000
MAX_CACHED_BYTES: Final = 100 * 1024 * 1024

# The limit of all queues of a consumer: two full queues. With a queue's own limit alone, a listener
# that is stuck would fill 100 MiB for each of its queues. RocketMQ has a limit for each topic,
# pullThresholdSizeForTopic.
MAX_TOTAL_CACHED_BYTES: Final = 200 * 1024 * 1024

# RocketMQ's consumeConcurrentlyMaxSpan. A message that is not done holds the group's progress:
# after a crash the messages behind it are consumed again. This bounds their number.
MAX_SPAN: Final = 2000


class CachedBytes:
    """The bytes of all queues of a consumer, with a limit above which queues stop pulling.

    A queue that holds nothing may always pull, so that one queue whose listener is stuck does not
    stop the others. So each queue may exceed the limit by the answer to one pull.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._on_room: set[Callable[[], None]] = set()

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes

    def add(self, size: int) -> None:
        self._bytes += size

    def remove(self, size: int) -> None:
        """Subtract bytes; make the calls of `when_room` if there is room now."""
        self._bytes -= size
        if self._on_room and not self.is_full:
            waiting, self._on_room = self._on_room, set()
            for tell in waiting:
                tell()

    def when_room(self, tell: Callable[[], None]) -> None:
        """Call `tell` once when there is room, however often it is given."""
        self._on_room.add(tell)


class CachedQueue:
    """The messages of a queue that were pulled and are not done.

    The offset to commit is that of the oldest message that is not done, so that a crash repeats
    messages but loses none. Source: RocketMQ's ProcessQueue.

    Pulling stops at `max_messages`, or at `max_bytes` of bodies and properties. `total` counts the
    bytes of all queues; only this one's when None.
    """

    def __init__(
        self,
        next_offset: int = 0,
        max_messages: int = MAX_CACHED_MESSAGES,
        max_bytes: int = MAX_CACHED_BYTES,
        total: CachedBytes | None = None,
    ) -> None:
        self.total: Final = CachedBytes(max_bytes) if total is None else total
        self.next_offset = next_offset
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[ReceivedMessage] = deque()
        self._order: deque[int] = deque()  # offsets that may not be done, ascending
        self._not_done: dict[int, ReceivedMessage] = {}
        self._failures: dict[int, int] = {}  # of messages that are not done
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._not_done)

    @property
    def waiting(self) -> int:
        """The number of messages that no listener has."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """The bytes of bodies and properties of the messages that are not done."""
        return self._bytes

    @property
    def full(self) -> bool:
        return (
            len(self._not_done) >= self._max_messages
            or self._bytes >= self._max_bytes
            or (self._bytes > 0 and self.total.is_full)
            or (bool(self._order) and self.next_offset - self.commit_offset > MAX_SPAN)
        )

    @property
    def commit_offset(self) -> int:
        """The first queue offset that is not done."""
        while self._order and self._order[0] not in self._not_done:
            self._order.popleft()
        return self._order[0] if self._order else self.next_offset

    def add(
        self, messages: Iterable[ReceivedMessage], next_offset: int, *, held: bool = False
    ) -> None:
        """Add the messages of a pull.

        Args:
            messages: in the order of their offsets; those that are here already are ignored.
            next_offset: where pulling goes on.
            held: no listener may take them before `give_back`.
        """
        first, size = self.next_offset, 0
        new = [message for message in messages if message.queue_offset >= first]
        for message in new:
            self._not_done[message.queue_offset] = message
            size += message.held_bytes
        self._order += [message.queue_offset for message in new]
        if not held:
            self._waiting += new
        if size:
            self._change_bytes(size)
        self.next_offset = max(next_offset, self.next_offset)

    def take(self, most: int) -> list[ReceivedMessage]:
        """Take up to `most` messages for a listener, oldest first."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def done(self, messages: Sequence[ReceivedMessage]) -> None:
        """Record that messages are done; those that `reset` has dropped are ignored."""
        size = 0
        for message in messages:
            offset = message.queue_offset
            if self._not_done.get(offset) is message:
                del self._not_done[offset]
                size += message.held_bytes
                if self._failures:
                    self._failures.pop(offset, None)
        if size:
            self._change_bytes(-size)

    def count_failure(self, message: ReceivedMessage) -> int:
        """Count a failure of the listener with a message; return the count."""
        count = self._failures.get(message.queue_offset, 0) + 1
        if self._not_done.get(message.queue_offset) is message:
            self._failures[message.queue_offset] = count
        return count

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Let messages be taken again, after all others: one that always fails must not be next."""
        self._waiting.extend(one for one in messages if self._not_done.get(one.queue_offset) is one)

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Let messages be taken again, before all others, in their order."""
        still_here = [one for one in messages if self._not_done.get(one.queue_offset) is one]
        self._waiting.extendleft(reversed(still_here))

    def reset(self, next_offset: int) -> None:
        """Drop all messages, and go on at `next_offset`."""
        self._waiting.clear()
        self._order.clear()
        self._not_done.clear()
        self._failures.clear()
        self._change_bytes(-self._bytes)
        self.next_offset = next_offset

    def _change_bytes(self, more: int) -> None:
        self._bytes += more
        if more > 0:
            self.total.add(more)
        else:
            self.total.remove(-more)
