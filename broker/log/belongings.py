"""A table of what belongs to consumer groups and topics. Deleting either takes constant time.

A topic may have the offsets of a hundred thousand groups, and its deletion is one entry of the log.
So a deletion only ends the topic's life: from then on its rows cannot be found. They are removed
later, a few with each change. Progress of the removal is never visible.

A snapshot captures all rows as of one entry, and is written while further entries are folded. Only
the dictionary is copied at once, in two milliseconds for a hundred thousand rows. A value is copied
before its first change after the capture.
"""

from collections import deque
from collections.abc import Iterator, MutableMapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")
T = TypeVar("T")

# Removed with each change: more than a change adds, so that dead rows never pile up.
_SWEPT_KEYS: Final = 16


@dataclass(slots=True, eq=False)
class _Life(Generic[K]):
    """One group or topic, from its first row until it is deleted.

    Attributes:
        ended_as: the number of its deletion; 0 while it is alive.
    """

    keys: dict[K, None] = field(default_factory=dict)
    is_over: bool = False
    ended_as: int = 0

    def was_over(self, deletions: int) -> bool:
        """Return whether it was among the first `deletions` deletions."""
        return 0 < self.ended_as <= deletions


@dataclass(slots=True, eq=False)
class _Belonging(Generic[K, V]):
    """One value, with the lives of its group and its topic. Never changed once a capture has it.

    Attributes:
        captures: how many captures there had been when this object was made.
    """

    value: V
    group: _Life[K]
    topic: _Life[K]
    captures: int


class Belongings(MutableMapping[K, V]):
    """A dictionary whose keys are tuples that name a group and a topic.

    Args:
        group_at: position of the group's name in a key.
        topic_at: position of the topic's name in a key.
    """

    __slots__ = (
        "_all",
        "_captures",
        "_deletions",
        "_ended",
        "_group_at",
        "_groups",
        "_topic_at",
        "_topics",
    )

    def __init__(self, group_at: int = 0, topic_at: int = 1) -> None:
        self._group_at = group_at
        self._topic_at = topic_at
        self._all: dict[K, _Belonging[K, V]] = {}
        self._groups: dict[str, _Life[K]] = {}
        self._topics: dict[str, _Life[K]] = {}
        self._ended: deque[_Life[K]] = deque()
        self._captures = 0
        self._deletions = 0

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
        found = self._all.get(key)
        if found is None or found.group.is_over or found.topic.is_over:
            return default
        return found.value

    def __setitem__(self, key: K, value: V) -> None:
        found = self._all.get(key)
        if found is not None:
            if not (found.group.is_over or found.topic.is_over):
                if found.captures == self._captures:
                    found.value = value
                else:
                    self._replace(key, found, value)
                return
            self._remove(key)
        group = self._life(self._groups, key[self._group_at])
        topic = self._life(self._topics, key[self._topic_at])
        group.keys[key] = topic.keys[key] = None
        self._all[key] = _Belonging(value, group, topic, self._captures)
        self._sweep()

    def __delitem__(self, key: K) -> None:
        self[key]  # raises KeyError
        self._remove(key)
        self._sweep()

    def __iter__(self) -> Iterator[K]:
        for key, found in self._all.items():
            if not (found.group.is_over or found.topic.is_over):
                yield key

    def listed(self) -> list[K]:
        """List the keys: a millisecond for 100 000, unless a deletion is being swept."""
        return list(self) if self._ended else list(self._all)

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._ended else len(self._all)

    def __bool__(self) -> bool:
        return bool(self._all) and any(True for _ in self)

    def has_room(self, most: int) -> bool:
        """Return whether it has fewer than `most` values. Counts them only when close to `most`."""
        return self.room(most) > 0

    def room(self, most: int) -> int:
        """Return how many values may be added if `most` are allowed. Counts them only if dead rows
        fill it.
        """
        self._sweep()
        room = most - len(self._all)
        return room if room > 0 else most - len(self)

    def __repr__(self) -> str:
        return f"Belongings({dict(self)})"

    def changing(self, key: K) -> V | None:
        """Return the value of a key, to be changed in place; None without one.

        Values from other methods must not be changed: a snapshot may hold them.
        """
        found = self._all.get(key)
        if found is None or found.group.is_over or found.topic.is_over:
            return None
        if found.captures != self._captures:
            return self._replace(key, found, copy(found.value))
        return found.value

    def setdefault(self, key: K, default: V) -> V:
        """Return the value of a key, after adding `default` if there is none. It may be changed in
        place.
        """
        found = self.changing(key)
        if found is None:
            found = self[key] = default
        return found

    def captured(self) -> Iterator[tuple[K, V]]:
        """Return all rows as of the call, whatever changes while they are taken, in any thread."""
        rows, deletions = self._all.copy(), self._deletions
        self._captures += 1
        return (
            (key, found.value)
            for key, found in rows.items()
            if not (found.group.was_over(deletions) or found.topic.was_over(deletions))
        )

    def of_group(self, group: str) -> list[K]:
        return self._of(self._groups.get(group))

    def each_of_group(self, group: str) -> Iterator[K]:
        """Yield the keys of a group for callers that need only the first few. Nothing may change
        meanwhile.
        """
        life = self._groups.get(group)
        return iter(()) if life is None else (key for key in life.keys if key in self)

    def of_topic(self, topic: str) -> list[K]:
        return self._of(self._topics.get(topic))

    def values_of_group(self, group: str) -> list[V]:
        """Return the values of a group. They must not be changed."""
        return self._values(self._groups.get(group))

    def values_of_topic(self, topic: str) -> list[V]:
        """Return the values of a topic. They must not be changed."""
        return self._values(self._topics.get(topic))

    def drop_group(self, group: str) -> None:
        self._end(self._groups.pop(group, None))

    def drop_topic(self, topic: str) -> None:
        self._end(self._topics.pop(topic, None))

    def _of(self, life: _Life[K] | None) -> list[K]:
        if life is None:
            return []
        return [key for key in life.keys if key in self] if self._ended else list(life.keys)

    def _values(self, life: _Life[K] | None) -> list[V]:
        if life is None:
            return []
        found = [self._all[key] for key in life.keys]
        return [one.value for one in found if not (one.group.is_over or one.topic.is_over)]

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
            self._deletions += 1
            life.ended_as = self._deletions
            life.is_over = True
            self._ended.append(life)
        self._sweep()

    def _replace(self, key: K, found: _Belonging[K, V], value: V) -> V:
        self._all[key] = _Belonging(value, found.group, found.topic, self._captures)
        return value

    def _remove(self, key: K) -> None:
        found = self._all.pop(key)
        for lives, life, name in (
            (self._groups, found.group, key[self._group_at]),
            (self._topics, found.topic, key[self._topic_at]),
        ):
            life.keys.pop(key, None)
            if not life.keys and not life.is_over:
                del lives[name]

    def _sweep(self) -> None:
        left = _SWEPT_KEYS
        while self._ended and left:
            keys = self._ended[0].keys
            while keys and left:
                # From the back: each later look at the front would pass the gaps of removed keys.
                self._remove(keys.popitem()[0])
                left -= 1
            if not keys:
                self._ended.popleft()
