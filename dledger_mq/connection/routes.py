"""The routes that a client knows: learnt when needed, every 10 s, and at once after a failure."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import trio

from dledger_mq.argument_checks import check_kind, kind_of
from dledger_mq.connection import requests
from dledger_mq.connection.topic_route import ClientRoute, client_route
from dledger_mq.errors import (
    InvalidNameServers,
    NameServersUnreachable,
    NoBrokerLeads,
    NoNameServers,
    RequestRefused,
    RouteNotFound,
)
from remoting.bodies.route import TopicRoute, decode_cluster_info, decode_route
from remoting.message.topic_names import TEMPLATE_TOPIC
from remoting.net.address import parse_address
from remoting.net.client import RemotingClient
from remoting.net.errors import AddressMalformed, ConnectionClosed
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, RemotingError

_log = logging.getLogger(__name__)

# RocketMQ polls every 30 s, and its consumers wait as long when a leader freezes instead of dying.
# Name servers answer from memory.
REFRESH_S: Final = 10.0

# After this time without an answer the next name server is asked.
NAMESERVER_TIMEOUT_S: Final = 1.0

# A topic that was routed within this time may still exist: its group may be electing a leader,
# which takes a second, or restarting. RocketMQ's clients go on with the route that they know.
GONE_S: Final = 30.0

# The most topics that one client follows. Each costs a request every 10 s.
MAX_TOPICS: Final = 4096

# Called with the new route of a topic when it differs from the one before.
RouteWatcher: TypeAlias = Callable[[ClientRoute], None]


def read_nameservers(given: str | Sequence[str]) -> tuple[str, ...]:
    """Split and check the addresses of name servers, each "host:port".

    Args:
        given: addresses, or one text with semicolons between them, as RocketMQ writes NAMESRV_ADDR.

    Raises:
        InvalidNameServers: there is none, or one is no address.
    """
    parts = given.split(";") if isinstance(given, str) else given
    if not isinstance(parts, Iterable):
        raise InvalidNameServers(f"give a list of texts, host:port, not {kind_of(given)}")
    addresses: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise InvalidNameServers(f"{part!r:.80} is not a text: write host:port")
        if isinstance(given, str) and not part.strip():
            continue  # "a:1;b:2;" has two addresses
        try:
            parse_address(part)
        except AddressMalformed as error:
            raise InvalidNameServers(str(error)) from None
        addresses.append(part.strip())
    if not addresses:
        raise InvalidNameServers('none is given: pass nameservers=["host:9876"], or client=')
    return tuple(addresses)


def _check_name(topic: str) -> None:
    """Raises InvalidArgument."""
    check_kind("Client", "topic", topic, str, "a topic's name")


@dataclass(slots=True)
class _Question:
    """A request for a route. One that is done without route and error was cancelled."""

    done: trio.Event = field(default_factory=trio.Event)
    route: ClientRoute | None = None
    error: RouteNotFound | NameServersUnreachable | RequestRefused | None = None


class Routes:
    """Routes by topic. The first name server that answers is asked until it fails."""

    def __init__(self, remoting: RemotingClient, nameservers: Sequence[str]) -> None:
        self._remoting = remoting
        self._nameservers = list(nameservers)
        self._routes: dict[str, ClientRoute] = {}
        self._found_at: dict[str, float] = {}  # when a name server knew the topic last
        self._creatable: set[str] = set()
        self._asking: dict[str, _Question] = {}
        self._watchers: dict[RouteWatcher, None] = {}  # a held pull of each queue has one

    @property
    def nameservers(self) -> tuple[str, ...]:
        """The name servers, beginning with the one that is asked first."""
        return tuple(self._nameservers)

    def watch(self, watcher: RouteWatcher) -> None:
        """Call `watcher` with every route that changes. It must not block."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: RouteWatcher) -> None:
        del self._watchers[watcher]

    def known(self, topic: str) -> ClientRoute | None:
        """Return the route as it was last learnt, without asking."""
        return self._routes.get(topic)

    def masters(self) -> set[str]:
        return {address for route in self._routes.values() for address in route.masters.values()}

    async def find(self, topic: str, *, may_create: bool = False) -> ClientRoute:
        """Return the known route of a topic, or ask for it.

        With `may_create`, a topic that does not exist has the queues that it would get by a
        message.

        Raises:
            RouteNotFound: no name server knows the topic (NoBrokerLeads: nor any other, for want of
                a leader).
            NameServersUnreachable: no name server answers.
            RequestRefused: one answered with an unexpected code.
        """
        _check_name(topic)
        return self._routes.get(topic) or await self.refresh(topic, may_create=may_create)

    async def refresh(self, topic: str, *, may_create: bool = False) -> ClientRoute:
        """Ask for a route now. Concurrent calls for one topic share one request.

        `may_create` holds for later refreshes of the topic, too. Raises: see `find`.
        """
        _check_name(topic)
        if may_create:
            self._creatable.add(topic)
        while (asking := self._asking.get(topic)) is not None:
            await asking.done.wait()
            if asking.error is not None:
                raise asking.error
            if asking.route is not None:
                return asking.route
        self._asking[topic] = asking = _Question()
        try:
            asking.route = await self._ask(topic)
        except (RouteNotFound, NameServersUnreachable, RequestRefused) as error:
            asking.error = error
            if isinstance(error, RouteNotFound):
                self._forget_masters(topic)
            raise
        finally:
            del self._asking[topic]
            asking.done.set()
        self._store(asking.route)
        return asking.route

    async def ask_nameserver(self, command: Command, what: str) -> Command:
        """Send a request to the name servers in turn until one answers; `what` names it in errors.

        Raises:
            NameServersUnreachable: none answers (NoNameServers: none of them is a name server).
            RequestRefused: one answered with an error code other than "topic does not exist".
        """
        reason, others = "none is given", 0
        for address in list(self._nameservers):
            try:
                reply = await self._remoting.request(address, command, NAMESERVER_TIMEOUT_S)
            except RemotingError as error:
                reason = str(getattr(error, "reason", error))
                others += isinstance(error, ConnectionClosed) and error.is_another_protocol
                # Later requests begin with the name server that answers.
                self._nameservers.remove(address)
                self._nameservers.append(address)
                continue
            if reply.code not in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
                raise RequestRefused(address, what, reply.code, reply.remark)
            return reply
        if others and others == len(self._nameservers):
            raise NoNameServers(self.nameservers, reason)
        raise NameServersUnreachable(self.nameservers, reason)

    async def keep_fresh(self) -> None:
        while True:
            await trio.sleep(REFRESH_S)
            for topic in list(self._routes):
                try:
                    await self.refresh(topic)
                except (RouteNotFound, NameServersUnreachable, RequestRefused) as error:
                    _log.warning("route of %s not refreshed: %s", topic, error)

    async def _ask(self, topic: str) -> ClientRoute:
        """Ask for a topic, then for the template of new topics if `may_create` allows it."""
        found = await self._ask_one(topic)
        if found is None and topic in self._creatable and not self._was_there_lately(topic):
            template = await self._ask_one(TEMPLATE_TOPIC)
            # A leader may have registered between the two answers, with all topics. The template
            # has fewer queues or more, so a message would leave the queue of its key.
            found = await self._ask_one(topic)
            if found is None and template is not None:
                return client_route(topic, template, provisional=True)
        if found is None:
            raise await self._why_not_found(topic)
        try:
            route = client_route(topic, found)
        except BodyMalformed as error:
            raise NameServersUnreachable(self.nameservers, str(error)) from None
        self._found_at[topic] = trio.current_time()
        return route

    def _was_there_lately(self, topic: str) -> bool:
        found_at = self._found_at.get(topic)
        return found_at is not None and trio.current_time() < found_at + GONE_S

    async def _why_not_found(self, topic: str) -> RouteNotFound:
        """Return NoBrokerLeads if no topic is routed since no group has a leader."""
        try:
            reply = await self.ask_nameserver(requests.cluster_info(), "tell the cluster")
            brokers = decode_cluster_info(reply.body).brokers
        except (NameServersUnreachable, RequestRefused, BodyMalformed):
            return RouteNotFound(topic, self.nameservers)  # the reason is unknown
        if any(broker.master is not None for broker in brokers.values()):
            return RouteNotFound(topic, self.nameservers)
        return NoBrokerLeads(topic, self.nameservers, tuple(sorted(brokers)))

    async def _ask_one(self, topic: str) -> TopicRoute | None:
        reply = await self.ask_nameserver(requests.route(topic), f"give the route of {topic}")
        if reply.code != ResponseCode.SUCCESS:
            return None
        try:
            return decode_route(reply.body)
        except BodyMalformed as error:
            raise NameServersUnreachable(self.nameservers, str(error)) from None

    def _store(self, route: ClientRoute) -> None:
        if self._routes.get(route.topic) == route:
            return
        if route.topic not in self._routes and len(self._routes) >= MAX_TOPICS:
            # Drop the route that was learnt first; if it is in use it is asked for again.
            first = next(iter(self._routes))
            del self._routes[first]
            self._found_at.pop(first, None)
        self._routes[route.topic] = route
        for watcher in list(self._watchers):
            watcher(route)

    def _forget_masters(self, topic: str) -> None:
        """Forget where to send messages of a topic that no name server knows now.

        Its queues are kept for consumers: while a group elects a leader a name server may know none
        of its topics, and that must not take every queue away from its consumer.
        """
        route = self._routes.get(topic)
        if route is not None and not route.provisional:
            self._store(ClientRoute(topic, (), route.read_queues, {}))
        elif route is not None:
            del self._routes[topic]
            self._found_at.pop(topic, None)
