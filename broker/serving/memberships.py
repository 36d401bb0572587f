"""The clients of each connection with their groups, and which have been silent for too long.

Most connections are of one client. A proxy has many on one.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from broker.serving.origin import Origin

# A member without a heartbeat for this long is dropped; RocketMQ's value, four heartbeats.
MEMBER_EXPIRY_S: Final = 120.0

# Dropping so many members in one step takes half a millisecond.
DROPPED_AT_ONCE: Final = 64


class Client(NamedTuple):
    """One client of a connection."""

    origin: Origin
    client_id: str


@dataclass(slots=True)
class Memberships:
    """Pairs of client and group."""

    # Time of the last heartbeat of each, in seconds on the monotonic clock; the latest is last.
    _heard: OrderedDict[tuple[Client, str], float] = field(default_factory=OrderedDict)
    # By connection, then by client id.
    _groups: dict[Origin, dict[str, set[str]]] = field(default_factory=dict)
    _counts: dict[Origin, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, pair: tuple[Client, str]) -> bool:
        return pair in self._heard

    def client_ids(self, origin: Origin) -> Collection[str]:
        return self._groups.get(origin, {}).keys()

    def groups(self, client: Client) -> Collection[str]:
        return self._groups.get(client.origin, {}).get(client.client_id, ())

    def count(self, origin: Origin) -> int:
        """Return how many pairs a connection has."""
        return self._counts.get(origin, 0)

    def some_of(self, origin: Origin) -> list[tuple[Client, str]]:
        """List a few pairs of a connection."""
        found: list[tuple[Client, str]] = []
        for client_id, groups in self._groups.get(origin, {}).items():
            client, room = Client(origin, client_id), DROPPED_AT_ONCE - len(found)
            found += [(client, group) for group in islice(groups, room)]
            if len(found) == DROPPED_AT_ONCE:
                break
        return found

    def put(self, client: Client, group: str, now: float) -> None:
        """Add a pair, or renew it."""
        pair, origin = (client, group), client.origin
        if pair not in self._heard:
            self._groups.setdefault(origin, {}).setdefault(client.client_id, set()).add(group)
            self._counts[origin] = self._counts.get(origin, 0) + 1
        self._heard[pair] = now
        self._heard.move_to_end(pair)

    def drop(self, client: Client, group: str) -> bool:
        """Remove a pair and return whether it was the client's last group."""
        origin, client_id = client
        del self._heard[client, group]
        self._counts[origin] -= 1
        clients = self._groups[origin]
        groups = clients[client_id]
        groups.discard(group)
        if groups:
            return False
        del clients[client_id]
        if not clients:
            del self._groups[origin], self._counts[origin]
        return True

    def silent(self, now: float) -> list[tuple[Client, str]]:
        """List a few pairs that have been silent for too long."""
        found: list[tuple[Client, str]] = []
        for pair, heard_at in islice(self._heard.items(), DROPPED_AT_ONCE):
            if now - heard_at < MEMBER_EXPIRY_S:
                break  # the heartbeats of all others are later
            found.append(pair)
        return found

    def clear(self) -> None:
        self._heard.clear()
        self._groups.clear()
        self._counts.clear()
