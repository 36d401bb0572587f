"""When groups began to read at the offsets to which they were reset."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from broker.log.belongings import Belongings

# RocketMQ's consumeTimeout, after which another member is given a message. A listener that takes
# longer can still undo a reset that its member does not know of.
RESET_MS: Final = 15 * 60 * 1000

# For each reset that begins: more than it adds.
_FORGOTTEN_AT_ONCE: Final = 4

# A consumer group, a topic, and the id of a queue.
QueueKey: TypeAlias = tuple[str, str, int]


class BegunResets:
    """Times in milliseconds since 1970, by group, topic and queue.

    They disappear with their group or topic at once, and old ones a few with each addition. Deleted
    keys leave the order later, when an addition passes them.
    """

    __slots__ = ("_order", "_times")

    def __init__(self) -> None:
        self._times: Belongings[QueueKey, int] = Belongings()
        self._order: OrderedDict[QueueKey, None] = OrderedDict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BegunResets) and self.listed() == other.listed()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BegunResets({self.listed()})"

    def listed(self) -> list[tuple[QueueKey, int]]:
        """List all resets, the oldest first."""
        return [(key, self._times[key]) for key in self._order if key in self._times]

    def began_ms(self, key: QueueKey) -> int | None:
        """Return when a group began to read a queue after a reset; None if that is long ago, or
        never was.
        """
        return self._times.get(key)

    def begin(self, key: QueueKey, now_ms: int) -> None:
        """Note that a group begins to read now, and forget some old resets."""
        for old in self._first():
            if now_ms - self._times[old] >= RESET_MS:
                self.forget(old)
        self.put(key, now_ms)

    def put(self, key: QueueKey, began_ms: int) -> None:
        """Note that a group began to read at a time, without forgetting others."""
        self.forget(key)
        self._times[key] = began_ms
        self._order[key] = None

    def forget(self, key: QueueKey) -> None:
        """Forget a group that is reset again and has not begun to read."""
        self._times.pop(key, None)
        self._order.pop(key, None)

    def drop_topic(self, topic: str) -> None:
        self._times.drop_topic(topic)

    def drop_group(self, group: str) -> None:
        self._times.drop_group(group)

    def captured(self) -> Iterator[tuple[Any, ...]]:
        return self._times.captured()

    def _first(self) -> list[QueueKey]:
        """Return the oldest keys, and remove deleted ones in front of them."""
        found: list[QueueKey] = []
        gone: list[QueueKey] = []
        for key in self._order:
            if key in self._times:
                found.append(key)
                if len(found) == _FORGOTTEN_AT_ONCE:
                    break
            else:
                gone.append(key)
        for key in gone:
            del self._order[key]
        return found
