"""In which groups clients' connections are, and which of them have been silent for too long."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from broker.serving.origin import Origin

# A member without a heartbeat for this long is gone; RocketMQ's value, four heartbeats.
MEMBER_EXPIRY_S: Final = 120.0

# Members that are dropped in one step: half a millisecond.
DROPPED_AT_ONCE: Final = 64


@dataclass(slots=True)
class Memberships:
    """Connections and groups; its length is how many pairs of them there are."""

    # When each was heard of, in seconds on the monotonic clock; the latest last.
    _heard: OrderedDict[tuple[Origin, str], float] = field(default_factory=OrderedDict)
    _groups: dict[Origin, set[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, pair: tuple[Origin, str]) -> bool:
        return pair in self._heard

    def groups(self, origin: Origin) -> Collection[str]:
        """The groups that a connection is in."""
        return self._groups.get(origin, ())

    def put(self, origin: Origin, group: str, now: float) -> None:
        """A connection is in a group, or still is."""
        self._heard[origin, group] = now
        self._heard.move_to_end((origin, group))
        self._groups.setdefault(origin, set()).add(group)

    def drop(self, origin: Origin, group: str) -> bool:
        """A connection leaves a group that it is in; whether that was its last one."""
        del self._heard[origin, group]
        groups = self._groups[origin]
        groups.discard(group)
        if groups:
            return False
        del self._groups[origin]
        return True

    def silent(self, now: float) -> list[tuple[Origin, str]]:
        """A few of those that have been silent for too long."""
        found: list[tuple[Origin, str]] = []
        for pair, heard_at in islice(self._heard.items(), DROPPED_AT_ONCE):
            if now - heard_at < MEMBER_EXPIRY_S:
                break  # all others were heard of later
            found.append(pair)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._heard.clear()
        self._groups.clear()
