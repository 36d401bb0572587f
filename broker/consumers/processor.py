"""Answers heartbeats (34), leaves (35) and requests for members (38, 203); notifies groups (40).

A heartbeat also names the groups for which a client produces.

Source: RocketMQ's ClientManageProcessor and ConsumerManageProcessor.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.consumers.differences import Differences
from broker.consumers.members import CONSUMERS, GroupMembers, Member
from broker.consumers.namesakes import Namesakes
from broker.consumers.notices import Notices
from broker.consumers.proxied import ProxiedMembers
from broker.errors import RequestRefused
from broker.filters.changes import FILTER_CHANGES
from broker.groups.changes import GROUP_CHANGES
from broker.groups.state import GROUPS
from broker.log.append_outcome import not_leader
from broker.producers.members import PRODUCERS, Producer
from broker.producers.proxies import PROXIES, Outcomes
from broker.serving.memberships import Client
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.names import check_group_name, is_legal_name
from broker.topics.needs import group_need, topic_need
from remoting.bodies.consumer_group import encode_consumer_list
from remoting.bodies.heartbeat import (
    MAX_HEARTBEAT_GROUPS,
    ConsumeFromWhere,
    ConsumerData,
    Heartbeat,
    MessageModel,
    decode_heartbeat,
)
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Of the heartbeats of one connection: some ten thousand consumers of a proxy. One client with the
# most subscriptions takes less.
MAX_CLIENT_BYTES: Final = 16 * 1024 * 1024

# Producers of one connection, each in one group: a proxy may have some thousand clients.
MAX_CONNECTION_PRODUCERS: Final = 10_000

# Kinds of members in the answer to 203, and clients of each.
MAX_KINDS: Final = 16
MAX_CLIENTS: Final = 100

# One user has no more than this part of the places of all consumers, and of all producers.
_SHARE_OF_USER: Final = 4

# Groups of a heartbeat: a new group is two commands for the log.
_GROUPS_A_STEP: Final = 16


class ClientProcessor:
    """Keeps the consumers and the producers of each group."""

    def __init__(self, parts: Parts) -> None:
        consumers = parts[CONSUMERS]
        self._groups = parts.state[GROUPS]
        self._consumers = consumers
        self._producers = parts[PRODUCERS]
        self._proxies = parts[PROXIES]
        self._notices = Notices(consumers)
        self._differences = Differences(consumers)
        self._namesakes = Namesakes(consumers)
        self._changes = parts[GROUP_CHANGES]
        self._filters = parts[FILTER_CHANGES]
        self._settings = parts[SETTINGS]
        self._access = parts[ACCESS_GUARD]
        self._shares = parts[USER_SHARES]
        self._clock = parts.clock
        self._led_term = parts.led_term
        self._broker_name = parts.config.group
        self._work = parts.work

    @staticmethod
    def unregister_needs(command: Command) -> Sequence[Need]:
        group = command.name("consumerGroup", "")
        return (group_need(group, Action.SUB),) if group else ()

    def heartbeat(self, origin: Origin, command: Command) -> Steps:
        """Register a client (34). The reply leaves when the groups of its consumers are in the log.

        Raises RequestRefused: (2) too many consumers, producers, groups or subscriptions, (23) a
        wrong SQL92 condition, (26) no such group, and none is created, (29) a bad name.
        """
        heartbeat = decode_heartbeat(command.body)
        self._access.require(origin, command, _heartbeat_needs(heartbeat))
        self._check_share(origin, command, heartbeat)
        yield from self._register_producers(origin, command, heartbeat)
        self._check_room(origin, command, heartbeat)
        for data in heartbeat.consumers:
            for _ in self._filters.check(data):
                yield
            self._check(Client(origin, heartbeat.client_id), data)
        waiting = len(heartbeat.consumers)
        if not waiting:
            return command.reply()
        refusals: list[RequestRefused] = []

        def registered(data: ConsumerData, refusal: RequestRefused | None) -> None:
            nonlocal waiting
            waiting -= 1
            if refusal is None and self._led_term() is None:
                refusal = not_leader(self._broker_name)  # members that it knew would outlast it
            if refusal is not None:
                refusals.append(refusal)
            elif not origin.is_closed:
                self._register(origin, command, heartbeat.client_id, data)
            if not waiting:
                origin.send(refusals[0].reply_to(command) if refusals else command.reply())

        for number, data in enumerate(heartbeat.consumers, 1):
            if number % _GROUPS_A_STEP == 0:
                yield
            try:
                self._changes.ensure_group(
                    data.group,
                    lambda refusal, data=data: registered(data, refusal),  # type: ignore[misc]
                    self._shares.user_of(origin, command),
                )
            except RequestRefused as error:
                registered(data, error)
        return None

    def unregister(self, origin: Origin, command: Command) -> Command:
        """Remove a client from a consumer group, or a producer group, or both (35)."""
        client = Client(origin, command.name("clientID", ""))
        self._producers.unregister(client, command.name("producerGroup", ""))
        group = command.name("consumerGroup", "")
        if group and self._consumers.unregister(client, group):
            self._notify([group])
        return command.reply()

    def consumer_list(self, _origin: Origin, command: Command) -> Command:
        """List the client ids of a group, by which members share the queues (38).

        Raises RequestRefused (1): it has no members.
        """
        group = command.name("consumerGroup")
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise RequestRefused.failed(f"no consumer for this group, {group:.120}")
        return command.reply(body=encode_consumer_list(client_ids))

    def consumer_connections(self, origin: Origin, command: Command) -> Steps:
        """List the members of a consumer group, those that came through proxies as well (203).

        Raises RequestRefused (206): it has none.
        """
        name = command.name("consumerGroup")
        group = self._consumers.group(name)
        connections: list[str] = []
        body: dict[str, object] | None = None
        if group is not None:
            connections, body = yield from self._members_told(group)
        proxies = self._proxies.connected()
        if not proxies:
            return _members_reply(command, name, connections, body)

        def answered(outcomes: Outcomes) -> None:
            proxied = ProxiedMembers(outcomes)
            all_connections = [*connections, *proxied.connections]
            try:
                told = _with_proxied(body, proxied)
                origin.send(_members_reply(command, name, all_connections, told))
            except RequestRefused as refusal:
                origin.send(refusal.reply_to(command))

        self._proxies.ask_for_members(proxies, name, answered)
        return None

    def _members_told(
        self, group: GroupMembers
    ) -> Generator[None, None, tuple[list[str], dict[str, object]]]:
        """Return the members that the broker knows, and what they subscribe to."""
        newest = next(iter(group.members.values()))
        connections: list[str] = []
        for piece in pieces(group.members.items()):
            for client, member in piece:
                if member.last_heartbeat > newest.last_heartbeat:
                    newest = member
                connections.append(compact_json(_connection(client.origin, member)))
            yield
        data = newest.data
        body: dict[str, object] = {
            "consumeFromWhere": data.consume_from_where.name,
            "consumeType": data.consume_type.name,
            "messageModel": data.message_model.name,
            "subscriptionTable": {
                topic: subscription.to_json() for topic, subscription in group.subscriptions.items()
            },
        }
        if group.kinds.differ:  # RocketMQ's tools ignore it
            kinds = yield from group.clients_by_kind_in_steps(MAX_KINDS, MAX_CLIENTS)
            body["differentSubscriptions"] = [
                {
                    "clientIds": clients,
                    "members": group.kinds.counts[kind],
                    "messageModel": kind.model.name,
                    "subscriptions": {topic: text for topic, _type, text in sorted(kind.wanted)},
                }
                for kind, clients in kinds.items()
                if kind in group.kinds.counts  # its members may have left meanwhile
            ]
        return connections, body

    def drop(self, origin: Origin) -> None:
        """Forget the consumers of a connection that has ended."""
        self._work.begin("dropping consumers that disconnected", self._dropping(origin))

    def _dropping(self, origin: Origin) -> Iterator[None]:
        lost: set[str] = set()
        while groups := self._consumers.drop_some(origin):
            lost.update(groups)
            yield
        self._notify(sorted(lost))

    def expire(self) -> None:
        """Drop silent members; log groups with different subscriptions or equal client ids."""
        self._work.begin("looking over consumers", self._looking(self._clock()))

    def _looking(self, now: float) -> Iterator[None]:
        lost: set[str] = set()
        while groups := self._consumers.expire(now):
            lost.update(groups)
            yield
        for group in sorted(lost):
            self._notify([group])
            yield
        yield from self._differences.look(now)
        yield from self._namesakes.look(now)

    def end_term(self) -> None:
        """Forget all consumers: this member no longer leads, and they turn to the new leader."""
        self._consumers.clear()
        self._notices.clear()
        self._differences.clear()
        self._namesakes.clear()

    def tick(self) -> None:
        self._notices.tick()

    def _register_producers(
        self, origin: Origin, command: Command, heartbeat: Heartbeat
    ) -> Generator[None, None, None]:
        user = self._access.user_of(origin, command)
        client = Client(origin, heartbeat.client_id)
        for number, group in enumerate(heartbeat.producer_groups, 1):
            if number % _GROUPS_A_STEP == 0:
                yield
            if not is_legal_name(group):
                continue  # it cannot begin a transaction, so it is never asked about one
            is_new = not self._producers.is_member(client, group)
            if self._producers.group_count(client) >= MAX_HEARTBEAT_GROUPS:
                return  # a heartbeat holds so many, and no client needs more
            if is_new and self._producers.count_of(origin) >= MAX_CONNECTION_PRODUCERS:
                raise RequestRefused.busy(
                    f"the clients of one connection produce for {MAX_CONNECTION_PRODUCERS} groups: "
                    "use more connections"
                )
            if is_new and len(self._producers) >= self._settings.now.limits.max_clients:
                raise RequestRefused.busy(
                    f"{len(self._producers)} producers are registered: stop some"
                )
            member = Producer(
                heartbeat.client_id, self._clock(), command.language, command.version, user
            )
            self._producers.register(origin, group, member)

    def _check_share(self, origin: Origin, command: Command, heartbeat: Heartbeat) -> None:
        """Raise RequestRefused (2) if a user would have too many of all places of clients."""
        user = self._shares.user_of(origin, command)
        if user is None:
            return
        most = self._settings.now.limits.max_clients // _SHARE_OF_USER
        connections = self._shares.connections_of(user)
        client = Client(origin, heartbeat.client_id)
        groups = [one.group for one in heartbeat.consumers]
        for what, is_member, count_of, names in (
            ("consumers", self._consumers.is_member, self._consumers.count_of, groups),
            (
                "producers",
                self._producers.is_member,
                self._producers.count_of,
                heartbeat.producer_groups,
            ),
        ):
            new = sum([not is_member(client, name) for name in names])
            if new and sum(map(count_of, connections)) + new > most:
                raise RequestRefused.busy(f"user {user} has too many {what}, of {most}: stop some")

    def _check_room(self, origin: Origin, command: Command, heartbeat: Heartbeat) -> None:
        """Raise RequestRefused (2) if the heartbeats of a client, of a user, or of all would take
        too much memory.
        """
        consumers, added = self._consumers, sum([one.size for one in heartbeat.consumers])
        most = self._settings.now.limits.max_client_bytes
        share = most // _SHARE_OF_USER
        if not added or (
            consumers.size_of(origin) + added <= MAX_CLIENT_BYTES
            and consumers.size + added <= share  # then no user has more
        ):
            return
        # Groups that a client repeats count once.
        known = {one.group for one in heartbeat.consumers}
        added -= consumers.size_in(Client(origin, heartbeat.client_id), known)
        if added <= 0:
            return
        if consumers.size_of(origin) + added > MAX_CLIENT_BYTES:
            raise RequestRefused.busy(
                f"the groups and subscriptions of one connection take more than "
                f"{MAX_CLIENT_BYTES} bytes: use more connections"
            )
        if consumers.size + added > most:
            raise RequestRefused.busy(
                f"the subscriptions of all consumers take {consumers.size} bytes: stop some"
            )
        user = self._shares.user_of(origin, command)
        if user is None:
            return
        taken = sum(map(consumers.size_of, self._shares.connections_of(user)))
        if taken + added > share:
            raise RequestRefused.busy(
                f"the subscriptions of user {user} take {taken} bytes of {share}: stop some"
            )

    def _check(self, client: Client, data: ConsumerData) -> None:
        check_group_name(data.group)
        if len(data.subscriptions) > self._settings.now.limits.max_subscriptions:
            raise RequestRefused.busy(
                f"{len(data.subscriptions)} subscriptions of group {data.group}: "
                f"at most {self._settings.now.limits.max_subscriptions}"
            )
        is_new = not self._consumers.is_member(client, data.group)
        if is_new and len(self._consumers) >= self._settings.now.limits.max_clients:
            raise RequestRefused.busy(f"{len(self._consumers)} consumers are registered: stop some")

    def _register(
        self, origin: Origin, command: Command, client_id: str, data: ConsumerData
    ) -> None:
        member = Member(client_id, self._clock(), data, command.language, command.version)
        self._filters.registered(data, self._shares.user_of(origin, command))
        if self._consumers.register(origin, member):
            self._notify([data.group])

    def _notify(self, groups: Iterable[str]) -> None:
        """Notify all members of these groups, so that they rebalance their queues."""
        if not self._settings.now.notifies_consumers:
            return
        for group in groups:
            config = self._groups.configs.get(group)
            if config is not None and not config.notify_change:
                continue
            self._notices.changed(group)


def _with_proxied(
    body: dict[str, object] | None, proxied: ProxiedMembers
) -> dict[str, object] | None:
    """Return what members subscribe to, those of proxies included; None without any member."""
    if not proxied.connections:
        return body
    told: dict[str, object] = body or {
        "consumeFromWhere": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET.name,
        "consumeType": proxied.consume_type.name,
        "messageModel": MessageModel.CLUSTERING.name,
        "subscriptionTable": {},
    }
    table = told["subscriptionTable"]
    if isinstance(table, dict):
        told = {**told, "subscriptionTable": {**proxied.subscriptions, **table}}
    return told


def _members_reply(
    command: Command, group: str, connections: list[str], body: dict[str, object] | None
) -> Command:
    """Raises RequestRefused (206): there is no member."""
    if body is None:
        raise RequestRefused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group:.120}] not online"
        )
    rest = compact_json(body)[1:]
    return command.reply(body=f'{{"connectionSet":[{",".join(connections)}],{rest}'.encode())


def _connection(origin: Origin, member: Member) -> dict[str, object]:
    return {
        "clientAddr": str(origin.peer),
        "clientId": member.client_id,
        "language": getattr(member.language, "name", str(member.language)),
        "version": member.version,
    }


def _heartbeat_needs(heartbeat: Heartbeat) -> Sequence[Need]:
    """Need to consume in each group, and from each topic. Producers need nothing: what they send
    and end is judged, and what they are asked about as well.
    """
    groups = {group_need(data.group, Action.SUB) for data in heartbeat.consumers}
    topics = {
        topic_need(one.topic, Action.SUB)
        for data in heartbeat.consumers
        for one in data.subscriptions
    }
    return [*groups, *topics]
