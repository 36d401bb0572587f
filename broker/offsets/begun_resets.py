"""When groups began to read where they were moved."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from broker.log.belongings import Belongings

# RocketMQ's consumeTimeout: after it, a message is another member's. A listener that takes longer
# can still undo a reset, if its member does not know of it.
RESET_MS: Final = 15 * 60 * 1000

# With each reset that begins: more than it adds.
_FORGOTTEN_AT_ONCE: Final = 4

# A consumer group, a topic, and the id of a queue.
QueueKey: TypeAlias = tuple[str, str, int]


class BegunResets:
    """By group, topic and queue: when it was, in milliseconds since 1970.

    They go with their group and topic at once, and with time a few at each that comes. Those that
    went with a topic stand in the order until one that comes passes them by, once.
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
        """All of them, the oldest first."""
        return [(key, self._times[key]) for key in self._order if key in self._times]

    def began_ms(self, key: QueueKey) -> int | None:
        """When a group began in a queue; None if that is long ago, or it was never moved."""
        return self._times.get(key)

    def begin(self, key: QueueKey, now_ms: int) -> None:
        """A group begins, now; some that did so long ago are forgotten."""
        for old in self._first():
            if now_ms - self._times[old] >= RESET_MS:
                self.forget(old)
        self.put(key, now_ms)

    def put(self, key: QueueKey, began_ms: int) -> None:
        """A group began then; nothing is forgotten."""
        self.forget(key)
        self._times[key] = began_ms
        self._order[key] = None

    def forget(self, key: QueueKey) -> None:
        """A group is moved again, and has not begun yet."""
        self._times.pop(key, None)
        self._order.pop(key, None)

    def drop_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self._times.drop_topic(topic)

    def drop_group(self, group: str) -> None:
        """A group was deleted."""
        self._times.drop_group(group)

    def captured(self) -> Iterator[tuple[Any, ...]]:
        """As of Belongings."""
        return self._times.captured()

    def _first(self) -> list[QueueKey]:
        """The oldest ones; what went with a topic or group leaves the order on the way there."""
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
