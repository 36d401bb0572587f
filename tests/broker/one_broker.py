"""A real broker of one member in this process, and a client to talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from broker.config import BrokerConfig
from broker.limits import BrokerLimits
from broker.server import Broker, Surroundings, run_broker
from broker.topics.own_topics import standing_topics
from broker.topics.state import TOPICS
from dledger.free_ports import free_ports
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, decode_records
from remoting.net.address import Address
from remoting.net.client import RemotingClient
from remoting.net.connection import Connection
from remoting.net.tls import ClientTls
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials

START_MS = 1_700_000_000_000


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Client:
    """One connection to one broker, with the requests that tests need.

    Attributes:
        notices: what the broker has asked.
        answers: whether it gets a reply to that.
        answers_with: the body of these replies.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        address: str,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.address = address
        self.notices: list[Command] = []
        self.noticed = trio.Event()
        self.answers = False
        self.answers_with: bytes | None = None
        self._client = RemotingClient(nursery, self._on_request, tls=tls, credentials=credentials)

    def _on_request(self, _connection: Connection, command: Command) -> Command | None:
        self.notices.append(command)
        self.noticed.set()
        self.noticed = trio.Event()
        if self.answers_with is not None:
            return command.reply(body=self.answers_with)
        return command.reply() if self.answers else None

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """A request with its fields as text, and its reply."""
        texts = {name: str(value) for name, value in fields.items()}
        with trio.fail_after(20):
            return await self._client.request(self.address, Command(code, texts, body), 15)

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **more: Any) -> Command:
        """A send as Java clients write it; `tags`, `keys` and `properties` go into properties."""
        return await self.ask(310, body, **send_fields(topic, queue_id, **more))

    async def pull(self, topic: str, offset: int, queue_id: int = 0, **more: Any) -> Command:
        """A pull that does not wait unless it is told to."""
        fields: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15000,
            "subVersion": 0,
            "subscription": "*",
        }
        return await self.ask(11, **{**fields, **more})

    async def messages(self, topic: str, queue_id: int = 0) -> list[MessageRecord]:
        """The first messages of a queue."""
        reply = await self.pull(topic, 0, queue_id)
        if reply.code == ResponseCode.PULL_OFFSET_MOVED:  # the topic was made again
            reply = await self.pull(topic, int(reply.fields["nextBeginOffset"]), queue_id)
        assert reply.code == 0, reply
        return decode_records(reply.body)

    async def heartbeat(self, client_id: str, group: str, *topics: str) -> Command:
        """Register as a consumer."""
        data = ConsumerData(group, subscriptions=[SubscriptionData(topic) for topic in topics])
        return await self.ask(34, encode_heartbeat(Heartbeat(client_id, [], [data])))

    def send_oneway(self, code: int, body: bytes = b"", **fields: Any) -> None:
        """A request that wants no reply."""
        texts = {name: str(value) for name, value in fields.items()}
        self._client.send_oneway(self.address, Command(code, texts, body))

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def send_fields(topic: str, queue_id: int = 0, **more: Any) -> dict[str, Any]:
    """The fields of a send with one-letter names."""
    properties = {name.upper(): str(more.pop(name)) for name in ("tags", "keys") if name in more}
    properties["UNIQ_KEY"] = "7F0000010001000000000000000001"
    fields: dict[str, Any] = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": START_MS,
        "h": 0,
        "i": encode_properties(properties).decode(),
        "j": 0,
        "k": "false",
    }
    return {**fields, **more}


@asynccontextmanager
async def running_broker(
    directory: Path,
    *,
    clock: Callable[[], int] | None = None,
    nameservers: tuple[str, ...] = (),
    auto_create_topics: bool = True,
    limits: BrokerLimits | None = None,
    hour_of: Callable[[int], int] = lambda _time_ms: 12,
    used_percent: Callable[[Path], float] = lambda _directory: 10.0,
    **settings: Any,
) -> AsyncIterator[tuple[Broker, trio.Nursery]]:
    """A broker that leads its group of one, and a nursery that ends with it.

    It is noon and the disk is nearly empty, unless a test says otherwise.
    """
    listen_port, log_port = free_ports(2)
    config = BrokerConfig(
        group="broker-a",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{log_port}"},
        listen=Address("127.0.0.1", listen_port),
        nameservers=nameservers,
        directory=directory,
        new=True,  # else it waits whether other members call
        auto_create_topics=auto_create_topics,
        limits=limits or BrokerLimits(),
        **settings,
    )
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(
            partial(
                run_broker,
                config,
                Surroundings(clock or Clock(), 1, hour_of, used_percent),
                report=lambda _line, /, **_fields: None,
            )
        )
        await until_leading(broker)
        yield broker, nursery
        nursery.cancel_scope.cancel()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, over the wire where nothing else tells."""
    with trio.fail_after(10):
        while not await is_so():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def until_leading(broker: Broker) -> None:
    """Wait until a broker leads and serves, and has made the topics that always exist."""
    standing = {config.topic for config in standing_topics(broker.config)}

    async def is_made() -> bool:
        return standing <= broker.machine.state[TOPICS].configs.keys()

    with trio.fail_after(10):
        async for change in broker.node.role_changes():
            if change.ready:
                broker.requests.follow_role()
                break
    await until(is_made)


@asynccontextmanager
async def served(directory: Path, **more: Any) -> AsyncIterator[Client]:
    """A client of a running broker."""
    async with running_broker(directory, **more) as (broker, nursery):
        yield Client(nursery, str(broker.config.address))
