"""Every kind of client goes on within 5 s after the network has forgotten its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from dledger_mq import (
    Admin,
    ConsumeResult,
    Message,
    MessagingError,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RouteNotFound,
)
from nameserver.server import serve_nameserver
from remoting.net.address import parse_address
from remoting.wire.errors import RemotingError
from tests.broker.one_broker import Client as BesideProxy
from tests.broker.one_broker import running_broker
from tests.remoting.net.swallowing_proxy import SwallowingProxy

CUT_S = 1.0
# Documented are 5; the rest is for a busy machine.
SERVED_S = 10.0

Listen = Callable[[Sequence[ReceivedMessage]], Awaitable[ConsumeResult]]


class Served:
    """Which kinds of clients were served after the heal, and how late.

    Attributes:
        after: seconds, by kind.
    """

    def __init__(self, *kinds: str) -> None:
        self.kinds = set(kinds)
        self.after: dict[str, float] = {}
        self._healed_at = float("inf")
        self.all = trio.Event()

    def begin(self) -> None:
        """The network is healed."""
        self._healed_at = trio.current_time()

    def note(self, kind: str) -> None:
        """One was served."""
        if trio.current_time() >= self._healed_at:
            self.after.setdefault(kind, round(trio.current_time() - self._healed_at, 1))
            if self.after.keys() == self.kinds:
                self.all.set()

    def listener(self, kind: str) -> Listen:
        """A listener of a consumer of that kind."""

        async def listen(_messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            self.note(kind)
            return ConsumeResult.SUCCESS

        return listen

    async def repeat(self, kind: str, call: Callable[[], Awaitable[object]]) -> None:
        """Call until it succeeds after the heal, often, and each time without waiting."""

        async def once() -> None:
            try:
                await call()
                self.note(kind)
            except (MessagingError, RemotingError):
                return  # as long as the network is cut

        async with trio.open_nursery() as nursery:
            while kind not in self.after:
                nursery.start_soon(once)
                await trio.sleep(0.25)
            nursery.cancel_scope.cancel()


TOPICS = ("push", "ordered", "pop", "pull")


@asynccontextmanager
async def behind_proxies(
    directory: Path, to_broker: SwallowingProxy, to_names: SwallowingProxy
) -> AsyncIterator[None]:
    """A name server and a broker that all reach, and that reach one another, by proxies only."""
    async with trio.open_nursery() as nursery:
        await to_broker.start(nursery)
        to_names.target = str(await nursery.start(serve_nameserver, "127.0.0.1", 0))
        names = (await to_names.start(nursery),)
        advertise = parse_address(to_broker.address)
        async with running_broker(directory, nameservers=names, advertise=advertise) as (broker, _):
            to_broker.target = str(broker.config.listen)
            yield
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_every_kind_of_client_is_served_soon_after_its_connections_were_forgotten(
    tmp_path: Path,
) -> None:
    served = Served("producer", "admin", "registration", *TOPICS)
    to_broker, to_names = SwallowingProxy(), SwallowingProxy()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(behind_proxies(tmp_path, to_broker, to_names))
        names = to_names.address
        producer = await stack.enter_async_context(Producer("p", nameservers=names))
        first = [(await producer.send(Message(topic, b"1"))).queue for topic in TOPICS]
        listener = served.listener
        pushed = PushConsumer("push", "push", listener("push"), nameservers=names)
        ordered = PushConsumer(
            "ordered", "ordered", listener("ordered"), nameservers=names, ordered=True
        )
        popping = PopConsumer("pop", "pop", listener("pop"), nameservers=names)
        pulling = PullConsumer("pull", nameservers=names)
        admin = Admin(nameservers=names)
        for client in (pushed, ordered, popping, pulling, admin):
            await stack.enter_async_context(client)
        for consumer in (pushed, ordered, popping):
            await consumer.ready()  # else it begins behind what is sent after the heal

        async def send_everywhere() -> None:
            await producer.send_many([Message(topic, b"x") for topic in TOPICS])

        async def know_new_topic() -> None:
            if "new" not in await admin.topics():
                raise RouteNotFound("new", (names,))

        async with trio.open_nursery() as nursery:
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "producer": send_everywhere,
                "pull": partial(pulling.pull, first[-1], 0),
                "admin": partial(admin.progress, "push"),
            }
            for kind, call in calls.items():
                nursery.start_soon(served.repeat, kind, call)
            await trio.sleep(0.5)
            for proxy in (to_broker, to_names):
                proxy.cut()
            await trio.sleep(CUT_S)
            for proxy in (to_broker, to_names):
                proxy.heal()
            served.begin()
            await BesideProxy(nursery, to_broker.target).send("new", b"x")
            nursery.start_soon(served.repeat, "registration", know_new_topic)
            with trio.move_on_after(2 * SERVED_S):
                await served.all.wait()
            nursery.cancel_scope.cancel()
    late = {kind: after_s for kind, after_s in served.after.items() if after_s > SERVED_S}
    assert (served.kinds - served.after.keys(), late) == (set(), {})
