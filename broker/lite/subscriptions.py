"""Which clients want which lite topics, on the leader, in memory.

Clients tell all that they want when they start and every 30 s, so a new leader knows soon.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from broker.lite.limits import SUBSCRIPTION_EXPIRY_S
from broker.serving.origin import Origin

# A group, and the id of a client in it.
ClientKey: TypeAlias = tuple[str, str]

# Lite topics that one step takes from a client that is gone.
_DROPPED_AT_ONCE: Final = 512


@dataclass(slots=True, eq=False)
class Subscriber:
    """A client of a group.

    Attributes:
        origin: the connection on which it told its subscriptions last.
        told_s: when, on the monotonic clock.
        version: of the newest complete set that it told.
        wanted: its lite topics.
        ready: those that may have something to give, the oldest first.
        is_wild: whether it wants all lite topics of the parent.
        is_gone: whether it counts no more; some of its rows may still be there.
    """

    group: str
    client_id: str
    parent: str
    origin: Origin
    told_s: float
    version: int = 0
    wanted: dict[bytes, None] = field(default_factory=dict)
    ready: dict[bytes, None] = field(default_factory=dict)
    is_wild: bool = False
    is_gone: bool = False

    @property
    def key(self) -> ClientKey:
        return self.group, self.client_id


@dataclass(slots=True, eq=False)
class GroupSubscriptions:
    """What the clients of a group want of one parent.

    Attributes:
        by_topic: the clients of each lite topic; one is not in a dictionary of its own.
        wild: clients that want all.
        ready: lite topics that may have something for those.
    """

    by_topic: dict[bytes, "Subscriber | dict[Subscriber, None]"] = field(default_factory=dict)
    wild: dict[Subscriber, None] = field(default_factory=dict)
    ready: dict[bytes, None] = field(default_factory=dict)

    def of(self, name: bytes) -> Collection[Subscriber]:
        found = self.by_topic.get(name)
        if found is None:
            return ()
        return (found,) if isinstance(found, Subscriber) else found

    def add(self, name: bytes, subscriber: Subscriber) -> None:
        found = self.by_topic.get(name)
        if found is None or found is subscriber:
            self.by_topic[name] = subscriber
        elif isinstance(found, Subscriber):
            self.by_topic[name] = {found: None, subscriber: None}
        else:
            found[subscriber] = None

    def remove(self, name: bytes, subscriber: Subscriber) -> None:
        found = self.by_topic.get(name)
        if found is subscriber:
            del self.by_topic[name]
        elif isinstance(found, dict):
            found.pop(subscriber, None)
            if len(found) == 1:
                (self.by_topic[name],) = found


class Subscriptions:
    """The subscriptions of all clients.

    Attributes:
        count: pairs of client and lite topic.
    """

    def __init__(self) -> None:
        self.count = 0
        self._clients: OrderedDict[ClientKey, Subscriber] = OrderedDict()  # last heard last
        self._groups: dict[str, dict[str, GroupSubscriptions]] = {}  # by parent, then by group

    def __len__(self) -> int:
        return len(self._clients)

    def client(self, key: ClientKey) -> Subscriber | None:
        return self._clients.get(key)

    def clients(self) -> Collection[Subscriber]:
        return self._clients.values()

    def groups(self, parent: str) -> Collection[str]:
        return self._groups.get(parent, {}).keys()

    def group(self, parent: str, group: str) -> GroupSubscriptions | None:
        return self._groups.get(parent, {}).get(group)

    def heard(
        self, group: str, client_id: str, parent: str, origin: Origin, now: float
    ) -> Subscriber:
        """Return a client that tells something, after making it if it is new.

        The parent of a client that is known must be the same.
        """
        key = group, client_id
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = Subscriber(group, client_id, parent, origin, now)
        client.origin, client.told_s = origin, now
        self._clients.move_to_end(key)
        return client

    def add(self, client: Subscriber, names: Iterable[bytes]) -> list[bytes]:
        """Add lite topics; return those that are new."""
        group = self._made(client)
        new = [name for name in names if name not in client.wanted]
        for name in new:
            client.wanted[name] = None
            group.add(name, client)
        self.count += len(new)
        return new

    def remove(self, client: Subscriber, names: Iterable[bytes]) -> list[bytes]:
        """Remove lite topics; return those that were there."""
        group = self._made(client)
        gone = [name for name in names if name in client.wanted]
        for name in gone:
            del client.wanted[name]
            client.ready.pop(name, None)
            group.remove(name, client)
        self.count -= len(gone)
        self._drop_if_empty(client, group)
        return gone

    def be_wild(self, client: Subscriber) -> bool:
        """Have a client want all lite topics; return whether it did not before."""
        is_new = not client.is_wild
        client.is_wild = True
        self._made(client).wild[client] = None
        return is_new

    def drop(self, key: ClientKey) -> Subscriber | None:
        """Forget a client: call `clear` until all of its rows are gone."""
        client = self._clients.pop(key, None)
        if client is None:
            return None
        client.is_gone = True
        client.ready.clear()
        group = self._made(client)
        group.wild.pop(client, None)
        self._drop_if_empty(client, group)
        return client

    def clear(self, client: Subscriber) -> Iterator[None]:
        """Remove all lite topics of a client, in steps."""
        while names := list(islice(client.wanted, _DROPPED_AT_ONCE)):
            self.remove(client, names)
            yield

    def silent(self, now: float) -> Subscriber | None:
        """Return a client that has not repeated its subscriptions for too long."""
        for client in self._clients.values():
            return client if now - client.told_s >= SUBSCRIPTION_EXPIRY_S else None
        return None

    def clear_all(self) -> None:
        self.count = 0
        self._clients = OrderedDict()
        self._groups = {}

    def _made(self, client: Subscriber) -> GroupSubscriptions:
        groups = self._groups.setdefault(client.parent, {})
        return groups.setdefault(client.group, GroupSubscriptions())

    def _drop_if_empty(self, client: Subscriber, group: GroupSubscriptions) -> None:
        groups = self._groups.get(client.parent, {})
        if groups.get(client.group) is group and not group.by_topic and not group.wild:
            del groups[client.group]
            if not groups:
                del self._groups[client.parent]
