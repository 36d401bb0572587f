"""The proxy on trio: its port, its parts, and how it ends."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import trio

from dledger_mq.connection.client import Client
from proxy.access import Access
from proxy.brokers.beside import Beside
from proxy.brokers.brokers import Brokers
from proxy.brokers.groups import Groups
from proxy.brokers.topics import Topics
from proxy.clients.questions import Questions
from proxy.clients.sessions import Sessions
from proxy.clients.telemetry import Telemetry
from proxy.figures import Figures
from proxy.http2.call import Call
from proxy.http2.draining import Draining
from proxy.http2.held_by_calls import HeldByCalls
from proxy.http2.limits import Limits
from proxy.http2.server import MOST_CALLS, UNTAKEN, serve_connection
from proxy.receiving.lite_subscriptions import LiteSubscriptions
from proxy.receiving.receives import Receives
from proxy.receiving.renewals import Renewals
from proxy.receiving.settlements import Settlements
from proxy.routes.routes import RouteAnswers
from proxy.sending.producer_groups import ProducerGroups
from proxy.sending.sends import Sends
from proxy.service import Service
from remoting.net.address import Address
from remoting.net.connection import Connection
from remoting.net.host_shares import HostShares
from remoting.net.server import Server, ServerLimits, listen
from remoting.net.tls import ServerTls
from remoting.wire.command import Command

_log = logging.getLogger(__name__)

# RocketMQ's grpcServerPort.
PROXY_PORT: Final = 8081

# What clients of the proxy speak, for those that ask by ALPN: gRPC's own libraries do.
PROTOCOLS: Final = ("h2",)

# Answers that wait for clients: messages take half of it at most.
MOST_ANSWER_BYTES: Final = 512 * 1024 * 1024

# How long calls may go on after the proxy was asked to end. Clients open new connections when they
# are asked to; the longest receives take 20 s, and their clients repeat them.
_DRAIN_S: Final = 2.0
# How long the statuses of these calls may take to reach their clients.
_ENDING_S: Final = 1.0


class Proxy:
    """Answers the gRPC calls of RocketMQ 5's clients with requests to brokers.

    Its parts flow one way: connections, calls, the service, its rooms, brokers.

    Args:
        client: open; connects to brokers and name servers.
        nursery: runs what goes on beside calls.
        is_user: whether the client has credentials: then it asks on behalf of its own clients.

    Attributes:
        draining: asks clients to go elsewhere.
        figures: what it counts.
        sessions: the clients that it knows.
    """

    def __init__(self, client: Client, nursery: trio.Nursery, *, is_user: bool) -> None:
        self.draining = Draining()
        self.sessions = Sessions()
        client.remoting.gather()
        brokers = Brokers(client, is_user=is_user)
        access = Access(brokers)
        topics, groups = Topics(brokers), Groups(brokers)
        beside = Beside(nursery)
        producers = ProducerGroups(client, topics, self.sessions, access, beside)
        questions = Questions(client, self.sessions, access, beside)
        self.renewals = Renewals(brokers, self.sessions)
        settlements = Settlements(brokers, self.renewals)
        lite = LiteSubscriptions(brokers, self.sessions, beside)
        receives = Receives(brokers, groups, topics, lite, self.renewals, settlements, beside)
        self._service = Service(
            RouteAnswers(brokers, topics, groups, access),
            Sends(brokers, topics, producers),
            receives,
            settlements,
            lite,
            Telemetry(self.sessions, groups, access, producers.expect, questions.answered),
        )
        self.figures = Figures(self._service.paths)
        nursery.start_soon(self.sessions.expire)
        nursery.start_soon(self.renewals.run)
        nursery.start_soon(receives.run)

    async def drain(self) -> None:
        """Ask all clients to go elsewhere, and wait a little until they have. New calls of theirs
        come by new connections, to another proxy if this one does not listen. Calls that last
        longer end with status 14 (UNAVAILABLE).
        """
        self.draining.begin()
        self.sessions.end_all()
        with trio.move_on_after(_DRAIN_S):
            await self.draining.wait_for_all()
        self.draining.end_calls()
        with trio.move_on_after(_ENDING_S):
            await self.draining.wait_for_all()

    async def answer(self, call: Call) -> None:
        """Answer one call: a router of `proxy.http2.server`."""
        method = self.figures.begun(call.path)
        try:
            await self._service.answer(call)
        finally:
            self.figures.over(method)


async def serve_proxy(
    client: Client,
    host: str,
    port: int = PROXY_PORT,
    *,
    is_user: bool = False,
    task_status: trio.TaskStatus[tuple[Address, Proxy]] = trio.TASK_STATUS_IGNORED,
    max_connections: int | None = None,
    tls: ServerTls | None = None,
) -> None:
    """Be a proxy until cancelled. Start it by `nursery.start`; before its end, call `drain`.

    Args:
        client: open.
        host: the address to listen on.
        port: 0 takes a free one.
        is_user: whether the client has credentials.
        task_status: gets the address, and the proxy.
        max_connections: as many as the process may open files for if None.
        tls: plain connections alone if None. With the protocols `PROTOCOLS`.

    Raises:
        PortInUse, ListenFailed, TooFewDescriptors: see `remoting.net.server.serve`.
    """
    server_limits = ServerLimits(max_connections=max_connections).within_descriptors()
    listeners = await listen(host, port)
    async with AsyncExitStack() as stack:
        for listener in listeners:
            stack.push_async_callback(listener.aclose)
        beside = await stack.enter_async_context(trio.open_nursery())
        stack.callback(beside.cancel_scope.cancel)
        proxy = Proxy(client, beside, is_user=is_user)
        server = Server(_NoRemoting(), server_limits, tls)
        beside.start_soon(server.run)
        limits = Limits()
        draining, held = proxy.draining, HeldByCalls()
        answers = HeldByCalls(MOST_ANSWER_BYTES, UNTAKEN)
        calls = HostShares(MOST_CALLS)

        async def serve(stream: trio.SocketStream, peer: Address) -> bool:
            secured = await server.secured(stream, peer)
            if secured is not None:
                proxy.figures.connections += 1
                try:
                    await serve_connection(
                        secured.stream,
                        proxy.answer,
                        limits,
                        str(peer),
                        draining=draining,
                        held=held,
                        answers=answers,
                        calls=calls,
                    )
                finally:
                    proxy.figures.connections -= 1
            return True

        taking = partial(server.take, listeners, gate=serve, nursery=beside)
        address = await beside.start(taking)
        task_status.started((address, proxy))
        await trio.sleep_forever()


class _NoRemoting:
    """Every connection is served by the gate: none comes here."""

    def on_open(self, connection: Connection) -> None:
        connection.close("this port speaks gRPC")

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        return len(commands)

    def on_close(self, connection: Connection) -> None:
        pass
