"""What belongs to a consumer group and a topic, and goes with either of them in constant time.

A deletion is one entry of the log, and a topic may have the offsets of a hundred thousand groups.
So it ends a life: what belongs to it is not found any more from then on, and is swept later, a few
keys with each change. What can be seen never depends on how far that is.
"""

from collections import deque
from collections.abc import Iterator, MutableMapping
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")
T = TypeVar("T")

# With each change: more than a change adds, so that what was swept never piles up.
_SWEPT_KEYS: Final = 16


class _Life(Generic[K]):
    """One group or topic, from when something belongs to it until it is deleted.

    Attributes:
        keys: of what belongs to it.
        is_over: whether it was deleted.
    """

    __slots__ = ("is_over", "keys")

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.is_over = False


class _Belonging(Generic[K, V]):
    """One value, and what it belongs to."""

    __slots__ = ("group", "topic", "value")

    def __init__(self, value: V, group: _Life[K], topic: _Life[K]) -> None:
        self.value = value
        self.group = group
        self.topic = topic


class Belongings(MutableMapping[K, V]):
    """A dictionary whose keys are tuples with the names of a group and of a topic.

    Args:
        group_at: where in a key the name of the group is.
        topic_at: where in a key the name of the topic is.
    """

    __slots__ = ("_all", "_ended", "_group_at", "_groups", "_topic_at", "_topics")

    def __init__(self, group_at: int = 0, topic_at: int = 1) -> None:
        self._group_at = group_at
        self._topic_at = topic_at
        self._all: dict[K, _Belonging[K, V]] = {}
        self._groups: dict[str, _Life[K]] = {}
        self._topics: dict[str, _Life[K]] = {}
        self._ended: deque[_Life[K]] = deque()

    def __getitem__(self, key: K) -> V:
        found = self._all[key]
        if found.group.is_over or found.topic.is_over:
            raise KeyError(key)
        return found.value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: T | None = None) -> V | T | None:
        """As of a dictionary."""
        found = self._all.get(key)
        if found is None or found.group.is_over or found.topic.is_over:
            return default
        return found.value

    def __setitem__(self, key: K, value: V) -> None:
        found = self._all.get(key)
        if found is not None:
            if not (found.group.is_over or found.topic.is_over):
                found.value = value
                return
            self._remove(key)
        group = self._life(self._groups, key[self._group_at])
        topic = self._life(self._topics, key[self._topic_at])
        group.keys[key] = topic.keys[key] = None
        self._all[key] = _Belonging(value, group, topic)
        self._sweep()

    def __delitem__(self, key: K) -> None:
        self[key]  # raises KeyError
        self._remove(key)
        self._sweep()

    def __iter__(self) -> Iterator[K]:
        for key, found in self._all.items():
            if not (found.group.is_over or found.topic.is_over):
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._ended else len(self._all)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def has_room(self, most: int) -> bool:
        """Whether it has fewer than `most` values. It counts them only if it may have as many."""
        self._sweep()
        return len(self._all) < most or len(self) < most

    def __repr__(self) -> str:
        return f"Belongings({dict(self)})"

    def of_group(self, group: str) -> list[K]:
        """The keys of what belongs to a group."""
        return self._of(self._groups.get(group))

    def of_topic(self, topic: str) -> list[K]:
        """The keys of what belongs to a topic."""
        return self._of(self._topics.get(topic))

    def drop_group(self, group: str) -> None:
        """A group was deleted, and with it what belongs to it."""
        self._end(self._groups.pop(group, None))

    def drop_topic(self, topic: str) -> None:
        """A topic was deleted, and with it what belongs to it."""
        self._end(self._topics.pop(topic, None))

    def _of(self, life: _Life[K] | None) -> list[K]:
        return [] if life is None else [key for key in life.keys if key in self]

    def __contains__(self, key: object) -> bool:
        found = self._all.get(key)  # type: ignore[call-overload]
        return found is not None and not (found.group.is_over or found.topic.is_over)

    def _life(self, lives: dict[str, _Life[K]], name: str) -> _Life[K]:
        life = lives.get(name)
        if life is None:
            life = lives[name] = _Life()
        return life

    def _end(self, life: _Life[K] | None) -> None:
        if life is not None:
            life.is_over = True
            self._ended.append(life)
        self._sweep()

    def _remove(self, key: K) -> None:
        """Let go of a value, whether it can be seen or not."""
        found = self._all.pop(key)
        for lives, life, name in (
            (self._groups, found.group, key[self._group_at]),
            (self._topics, found.topic, key[self._topic_at]),
        ):
            del life.keys[key]
            if not life.keys and not life.is_over:
                del lives[name]

    def _sweep(self) -> None:
        """Let go of some of what was deleted."""
        left = _SWEPT_KEYS
        while self._ended and left:
            keys = self._ended[0].keys
            while keys and left:
                self._remove(next(reversed(keys)))
                left -= 1
            if not keys:
                self._ended.popleft()
