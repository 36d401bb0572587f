"""The members of each producer group, by connection and client id, as their heartbeats say.

Only the leader has them, in memory, like the members of consumer groups. Any member of a group may
be asked how a transaction of the group ends. Source: RocketMQ's ProducerManager.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from broker.serving.memberships import Client, Memberships
from broker.serving.origin import Origin
from broker.serving.parts import Shared

# Members of one user that are looked at for one to ask. Its rules may depend on their hosts.
_LOOKED_AT: Final = 16


@dataclass(slots=True)
class Producer:
    """A client that sends for a group by one connection.

    Attributes:
        last_heartbeat: seconds on the monotonic clock.
        user: the user that signed the heartbeat; None without access control.
    """

    client_id: str
    last_heartbeat: float
    language: int | str = 0
    version: int = 0
    user: str | None = None


class Producers:
    """The members of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Client, Producer]] = {}
        # The same by group and user: the one who was asked last is last.
        self._turns: dict[str, dict[str | None, OrderedDict[Client, None]]] = {}
        self._memberships = Memberships()
        # The connections of each client id; that of the newest heartbeat is last.
        self._clients: dict[str, dict[Origin, None]] = {}

    def __len__(self) -> int:
        return len(self._memberships)

    def is_member(self, client: Client, group: str) -> bool:
        return (client, group) in self._memberships

    def register(self, origin: Origin, group: str, member: Producer) -> None:
        client = Client(origin, member.client_id)
        members = self._groups.setdefault(group, {})
        old = members.get(client)
        if old is not None and old.user != member.user:
            self._drop_turn(client, group, old.user)
        members[client] = member
        turns = self._turns.setdefault(group, {})
        turns.setdefault(member.user, OrderedDict())[client] = None
        self._memberships.put(client, group, member.last_heartbeat)
        origins = self._clients.setdefault(member.client_id, {})
        origins.pop(origin, None)
        origins[origin] = None

    def unregister(self, client: Client, group: str) -> None:
        if not self.is_member(client, group):
            return
        self._drop_turn(client, group, self._groups[group].pop(client).user)
        if not self._groups[group]:
            del self._groups[group]
        if self._memberships.drop(client, group):
            origins = self._clients[client.client_id]
            del origins[client.origin]
            if not origins:
                del self._clients[client.client_id]

    def drop_some(self, origin: Origin) -> bool:
        """Remove a few clients of a connection; return whether there were any."""
        return self._dropped(self._memberships.some_of(origin))

    def expire(self, now: float) -> bool:
        """Drop a few members that have been silent too long; return whether there were any."""
        return self._dropped(self._memberships.silent(now))

    def _dropped(self, pairs: list[tuple[Client, str]]) -> bool:
        for client, group in pairs:
            self.unregister(client, group)
        return bool(pairs)

    def members(self, group: str) -> dict[Client, Producer]:
        return self._groups.get(group, {})

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def any_of(
        self, group: str, may_be_asked: Callable[[Client, str | None], bool]
    ) -> Client | None:
        """Return a member of a group to ask; None if there is none.

        `may_be_asked`: tells of a member and its user. Users come one after the other, so that one
        who may not be asked cannot hide the others by many members.
        """
        for turns in self._turns.get(group, {}).values():
            for client in islice(turns, _LOOKED_AT):
                if not client.origin.is_closed and may_be_asked(client, self._user(client, group)):
                    return client
        return None

    def asked(self, client: Client, group: str) -> None:
        """Note that a member is asked now, so that others are asked next."""
        user = self._user(client, group)
        turns = self._turns[group]
        turns[user].move_to_end(client)
        turns[user] = turns.pop(user)

    def _user(self, client: Client, group: str) -> str | None:
        return self._groups[group][client].user

    def _drop_turn(self, client: Client, group: str, user: str | None) -> None:
        turns = self._turns[group]
        del turns[user][client]
        if not turns[user]:
            del turns[user]
            if not turns:
                del self._turns[group]

    def client(self, client_id: str) -> Origin | None:
        """Return the connection of a client; None if it has sent no heartbeat."""
        return next(reversed(self._clients.get(client_id, {})), None)

    def group_count(self, client: Client) -> int:
        return len(self._memberships.groups(client))

    def count_of(self, origin: Origin) -> int:
        """Return how many memberships the clients of a connection have."""
        return self._memberships.count(origin)

    def clear(self) -> None:
        self._clients.clear()
        self._groups.clear()
        self._turns.clear()
        self._memberships.clear()


PRODUCERS: Final = Shared("producers", lambda _parts: Producers())
