"""The members of each consumer group, by connection and client id, as their heartbeats say.

Only the leader has them, in memory: members send a heartbeat every 30 seconds, and at once on a new
connection. Source: RocketMQ's ConsumerManager.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from broker.consumers.kinds import Kind, Kinds, kind_of
from broker.serving.memberships import Client, Memberships
from broker.serving.origin import Origin
from broker.serving.parts import Shared
from remoting.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from remoting.bodies.pieces import pieces


@dataclass(slots=True)
class Member:
    """A client that consumes for a group by one connection.

    Attributes:
        client_id: two connections of one client have the same. A proxy's has many clients.
        last_heartbeat: seconds on the monotonic clock.
        kind: its subscriptions; set when it is registered.
        size: bytes that it takes, roughly; set when it is registered.
        since: its first heartbeat; set when it is registered.
    """

    client_id: str
    last_heartbeat: float
    data: ConsumerData
    language: int | str = 0
    version: int = 0
    kind: Kind | None = None
    size: int = 0
    since: float = 0.0


@dataclass(slots=True)
class GroupMembers:
    """A group's members.

    Attributes:
        members: by connection and client id.
        subscriptions: the subscriptions of the last heartbeat, by topic.
        kinds: the subscriptions of all members.
        by_client: the members of each client, by connection.
        connections: how many members each connection has.
        client_ids: sorted.
        broadcasting: how many members want every message for themselves.
    """

    members: dict[Client, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=Kinds)
    by_client: dict[str, dict[Origin, Member]] = field(default_factory=dict)
    connections: dict[Origin, int] = field(default_factory=dict)
    client_ids: list[str] = field(default_factory=list)
    broadcasting: int = 0

    def put(self, origin: Origin, member: Member) -> None:
        client = Client(origin, member.client_id)
        old = self.members.get(client)
        if old is not None:
            self.broadcasting -= old.data.message_model is MessageModel.BROADCASTING
        else:
            self.connections[origin] = self.connections.get(origin, 0) + 1
            if member.client_id not in self.by_client:
                insort(self.client_ids, member.client_id)
        self.by_client.setdefault(member.client_id, {})[origin] = member
        self.members[client] = member
        self.broadcasting += member.data.message_model is MessageModel.BROADCASTING

    def drop(self, client: Client) -> Member | None:
        member = self.members.pop(client, None)
        if member is None:
            return None
        of_client = self.by_client[client.client_id]
        del of_client[client.origin]
        if not of_client:
            del self.by_client[client.client_id]
            del self.client_ids[bisect_left(self.client_ids, client.client_id)]
        self.connections[client.origin] -= 1
        if not self.connections[client.origin]:
            del self.connections[client.origin]
        self.broadcasting -= member.data.message_model is MessageModel.BROADCASTING
        return member

    def clients_by_kind_in_steps(
        self, most_kinds: int, most_clients: int
    ) -> Generator[None, None, dict[Kind, list[str]]]:
        """Return some clients of some kinds: those with the fewest members first."""
        counts = self.kinds.counts
        fewest = nsmallest(most_kinds, counts, key=counts.__getitem__)
        found: dict[Kind, list[str]] = {kind: [] for kind in fewest}
        for piece in pieces(self.members.values()):
            for member in piece:
                clients = None if member.kind is None else found.get(member.kind)
                if clients is not None and len(clients) < most_clients:
                    clients.append(member.client_id)
            yield
        return found


class Consumers:
    """The members of all groups.

    Attributes:
        differing: the groups whose members have different subscriptions.
        size: bytes that all members take, roughly.
        namesakes: by group and client id: the connections with that id, if there are several.
    """

    def __init__(self) -> None:
        self.differing: set[str] = set()
        self.namesakes: dict[tuple[str, str], dict[Origin, Member]] = {}
        self._groups: dict[str, GroupMembers] = {}
        self._memberships = Memberships()
        self._sizes: dict[Origin, int] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._memberships)

    def size_of(self, origin: Origin) -> int:
        """Return the bytes that a connection's memberships take, roughly."""
        return self._sizes.get(origin, 0)

    def count_of(self, origin: Origin) -> int:
        """Return how many memberships the clients of a connection have."""
        return self._memberships.count(origin)

    def size_in(self, client: Client, groups: Collection[str]) -> int:
        """Return the part of `size_of` for a client in some groups."""
        found = [self._groups[one].members[client] for one in groups if self.is_member(client, one)]
        return sum([member.size for member in found])

    def is_member(self, client: Client, group: str) -> bool:
        return (client, group) in self._memberships

    def register(self, origin: Origin, member: Member) -> bool:
        """Register a member by its heartbeat; return whether the group's members must
        be notified.
        """
        name, client = member.data.group, Client(origin, member.client_id)
        group = self._groups.setdefault(name, GroupMembers())
        old = group.members.get(client)
        if old is not None and old.data == member.data:
            member.kind, member.size = old.kind, old.size
        else:
            member.kind, member.size = kind_of(member.data), member.data.size
        self._move(name, group, None if old is None else old.kind, member.kind)
        member.since = member.last_heartbeat if old is None else old.since
        group.put(origin, member)
        self._note_namesakes(name, group, member.client_id)
        self._memberships.put(client, name, member.last_heartbeat)
        self._resize(origin, member.size - (0 if old is None else old.size))
        topics_changed = self._subscribe(group, member.data)
        return old is None or topics_changed

    def unregister(self, client: Client, group: str) -> bool:
        """Remove a client from a group; return whether it was in it."""
        members = self._groups.get(group)
        member = None if members is None else members.drop(client)
        if members is None or member is None:
            return False
        self._resize(client.origin, -member.size)
        self._note_namesakes(group, members, member.client_id)
        self._move(group, members, member.kind, None)
        if not members.members:
            del self._groups[group]
        self._memberships.drop(client, group)
        if not self._memberships.count(client.origin):
            del self._sizes[client.origin]
        return True

    def drop_some(self, origin: Origin) -> list[str]:
        """Remove a few clients of a connection; return the groups that lost one."""
        return self._dropped(self._memberships.some_of(origin))

    def expire(self, now: float) -> list[str]:
        """Drop a few members that have been silent too long; return the groups that lost one."""
        return self._dropped(self._memberships.silent(now))

    def _dropped(self, pairs: list[tuple[Client, str]]) -> list[str]:
        for client, group in pairs:
            self.unregister(client, group)
        return sorted({group for _client, group in pairs})

    def count(self, group: str) -> int:
        found = self._groups.get(group)
        return len(found.members) if found else 0

    def client_ids(self, group: str) -> list[str]:
        """Return the client ids of a group, sorted: clients share the queues by this list."""
        found = self._groups.get(group)
        return found.client_ids[:] if found else []

    def origins(self, group: str) -> list[Origin]:
        """Return the connections of a group's members."""
        found = self._groups.get(group)
        return list(found.connections) if found else []

    def member(self, group: str, client_id: str) -> Origin | None:
        found = self._groups.get(group)
        named = () if found is None else found.by_client.get(client_id, ())
        return next(iter(named), None)

    def subscribes(self, group: str, topic: str) -> bool:
        found = self._groups.get(group)
        return found is not None and topic in found.subscriptions

    def groups(self) -> Collection[str]:
        return self._groups.keys()

    def is_broadcasting(self, group: str) -> bool:
        found = self._groups.get(group)
        return found is not None and found.broadcasting > 0

    def group(self, group: str) -> GroupMembers | None:
        return self._groups.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def clear(self) -> None:
        self._groups.clear()
        self._memberships.clear()
        self._sizes.clear()
        self.differing.clear()
        self.namesakes.clear()
        self.size = 0

    def _resize(self, origin: Origin, bytes_more: int) -> None:
        self._sizes[origin] = self._sizes.get(origin, 0) + bytes_more
        self.size += bytes_more

    def _note_namesakes(self, name: str, group: GroupMembers, client_id: str) -> None:
        """Update the namesakes of a client id whose connections have changed."""
        found = group.by_client.get(client_id, {})
        if len(found) > 1:
            self.namesakes[name, client_id] = found
        else:
            self.namesakes.pop((name, client_id), None)

    def _move(self, name: str, group: GroupMembers, old: Kind | None, new: Kind | None) -> None:
        if group.kinds.move(old, new):
            (self.differing.add if group.kinds.differ else self.differing.discard)(name)

    @staticmethod
    def _subscribe(group: GroupMembers, data: ConsumerData) -> bool:
        """Take over a member's subscriptions; return whether the set of topics changed.

        RocketMQ's rule: the newer version of a subscription counts, and topics that the member does
        not name are dropped.
        """
        wanted = {subscription.topic: subscription for subscription in data.subscriptions}
        changed = wanted.keys() != group.subscriptions.keys()
        for topic in list(group.subscriptions):
            if topic not in wanted:
                del group.subscriptions[topic]
        for topic, subscription in wanted.items():
            old = group.subscriptions.get(topic)
            if old is None or subscription.version >= old.version:
                group.subscriptions[topic] = subscription
        return changed


CONSUMERS: Final = Shared("consumers", lambda _parts: Consumers())
