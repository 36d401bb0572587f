"""The groups of each connection, and which members have been silent for too long."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from broker.serving.origin import Origin

# A member without a heartbeat for this long is dropped; RocketMQ's value, four heartbeats.
MEMBER_EXPIRY_S: Final = 120.0

# Dropping so many members in one step takes half a millisecond.
DROPPED_AT_ONCE: Final = 64


@dataclass(slots=True)
class Memberships:
    """Pairs of connection and group."""

    # Time of the last heartbeat of each, in seconds on the monotonic clock; the latest is last.
    _heard: OrderedDict[tuple[Origin, str], float] = field(default_factory=OrderedDict)
    _groups: dict[Origin, set[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, pair: tuple[Origin, str]) -> bool:
        return pair in self._heard

    def groups(self, origin: Origin) -> Collection[str]:
        return self._groups.get(origin, ())

    def put(self, origin: Origin, group: str, now: float) -> None:
        """Add a pair, or renew it."""
        self._heard[origin, group] = now
        self._heard.move_to_end((origin, group))
        self._groups.setdefault(origin, set()).add(group)

    def drop(self, origin: Origin, group: str) -> bool:
        """Remove a pair and return whether it was the connection's last group."""
        del self._heard[origin, group]
        groups = self._groups[origin]
        groups.discard(group)
        if groups:
            return False
        del self._groups[origin]
        return True

    def silent(self, now: float) -> list[tuple[Origin, str]]:
        """List a few pairs that have been silent for too long."""
        found: list[tuple[Origin, str]] = []
        for pair, heard_at in islice(self._heard.items(), DROPPED_AT_ONCE):
            if now - heard_at < MEMBER_EXPIRY_S:
                break  # the heartbeats of all others are later
            found.append(pair)
        return found

    def clear(self) -> None:
        self._heard.clear()
        self._groups.clear()
