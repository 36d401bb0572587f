"""The members of each producer group, one record per connection, as their heartbeats say.

Only the leader has them, in memory, like the members of consumer groups. Any member of a group may
be asked how a transaction of the group ends. Source: RocketMQ's ProducerManager.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker.serving.memberships import Memberships
from broker.serving.origin import Origin
from broker.serving.parts import Shared


@dataclass(slots=True)
class Producer:
    """A connection that sends for a group.

    Attributes:
        last_heartbeat: seconds on the monotonic clock.
        user: who signed the heartbeat; None without access control.
    """

    client_id: str
    last_heartbeat: float
    language: int | str = 0
    version: int = 0
    user: str | None = None


class Producers:
    """The members of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, OrderedDict[Origin, Producer]] = {}
        self._memberships = Memberships()
        self._clients: dict[str, Origin] = {}
        self._client_ids: dict[Origin, str] = {}  # the last one of each connection

    def __len__(self) -> int:
        return len(self._memberships)

    def is_member(self, origin: Origin, group: str) -> bool:
        return (origin, group) in self._memberships

    def register(self, origin: Origin, group: str, member: Producer) -> None:
        self._groups.setdefault(group, OrderedDict())[origin] = member
        self._memberships.put(origin, group, member.last_heartbeat)
        if self._client_ids.get(origin) != member.client_id:
            self._forget_client(origin)
            self._client_ids[origin] = member.client_id
        self._clients[member.client_id] = origin

    def unregister(self, origin: Origin, group: str) -> None:
        if not self.is_member(origin, group):
            return
        del self._groups[group][origin]
        if not self._groups[group]:
            del self._groups[group]
        if self._memberships.drop(origin, group):
            self._forget_client(origin)

    def drop(self, origin: Origin) -> None:
        for group in list(self._memberships.groups(origin)):
            self.unregister(origin, group)

    def expire(self, now: float) -> bool:
        """Drop a few members that have been silent too long; return whether there were any."""
        silent = self._memberships.silent(now)
        for origin, group in silent:
            self.unregister(origin, group)
        return bool(silent)

    def members(self, group: str) -> dict[Origin, Producer]:
        return self._groups.get(group, {})

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def any_of(self, group: str) -> Origin | None:
        """Return a member of a group to ask, another one each time; None if there is none."""
        members = self._groups.get(group, OrderedDict())
        for origin in members:
            if not origin.is_closed:
                members.move_to_end(origin)
                return origin
        return None

    def client(self, client_id: str) -> Origin | None:
        return self._clients.get(client_id)

    def group_count(self, origin: Origin) -> int:
        return len(self._memberships.groups(origin))

    def _forget_client(self, origin: Origin) -> None:
        """Forget the client id of a connection that has another one, or has left its last group."""
        client_id = self._client_ids.pop(origin, None)
        if client_id is not None and self._clients.get(client_id) is origin:
            del self._clients[client_id]

    def clear(self) -> None:
        self._clients.clear()
        self._client_ids.clear()
        self._groups.clear()
        self._memberships.clear()


PRODUCERS: Final = Shared("producers", lambda _parts: Producers())
