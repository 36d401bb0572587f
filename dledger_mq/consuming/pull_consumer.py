"""The pull consumer, which reads the queues it names from the offsets it names."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dledger.renamed import renamed_arguments
from dledger_mq.argument_checks import INT64, MOST_INT32, check_number, check_queue
from dledger_mq.client_metrics import ClientMetrics, reported
from dledger_mq.connection import requests
from dledger_mq.connection.calls import ATTEMPT_TIMEOUT_S, CALL_TIMEOUT_S, call_master
from dledger_mq.connection.client import Client
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import during_block
from dledger_mq.connection.side_work import read_beside
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.consuming.offsets import BrokerOffsets
from dledger_mq.consuming.pulling import PULL_BATCH, PULL_CODES, PullResult, read_pull_reply
from dledger_mq.consuming.subscription import ALL, Sql, subscription
from dledger_mq.errors import QueueNotFound
from dledger_mq.message import check_group
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.net.tls_config import Tls
from remoting.wire.command import Command
from remoting.wire.signature import Credentials

_NAME: Final = "PullConsumer"


class PullConsumer:
    """Reads queues one pull at a time. It joins no group and shares its queues with no consumer.

    All calls follow elections and lost connections until their time is over. They raise
    `RequestRefused` when a broker refuses, and `RouteNotFound`, `NoMaster`,
    `NameServersUnreachable` or a `remoting.wire.errors.RemotingError` when the time is over;
    `InvalidArgument` for what is no queue, and `InvalidOptions` for what is no number.

    Args:
        group: the group of the committed offsets.
        nameservers: "host:port" each, or one text with semicolons between them, for a client of its
            own.
        client: an open client to share instead.
        tls: TLS with all name servers and brokers, for a client of its own.
        credentials: the user that a client of its own is, where brokers have access control.
        metrics: receives each pull.
    """

    def __init__(
        self,
        group: str,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._metrics = reported(metrics)
        self._use = ClientUse("consumer", _NAME, nameservers, client, group, tls, credentials)
        self._client, self._lifetime = self._use.client, self._use.lifetime
        self._offsets = BrokerOffsets(self._client, group)
        # The subscription of the last pull, which most often is that of the next one, too.
        self._last_wanted: tuple[tuple[str, str | Sql], SubscriptionData] | None = None

    async def __aenter__(self) -> "PullConsumer":
        """Open the consumer; nothing is sent yet.

        Raises:
            OpenedTwice: it was opened before.
            ClientClosed: the shared client is not open.
        """
        await self._use.open()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._use.close(*raised)

    @during_block
    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in their order."""
        return list((await self._client.routes.find(topic)).read_queues)

    @renamed_arguments(hold_seconds="hold_s")
    @during_block
    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: str | Sql = ALL,
        most: int = PULL_BATCH,
        hold_s: float = 0.0,
    ) -> PullResult:
        """Read messages of a queue.

        Args:
            queue: the queue.
            offset: the first queue offset wanted; go on with the result's `next_offset`.
            tags: ``*``, tags joined by ``||``, or a condition.
            most: the most messages; RocketMQ's brokers return up to 32.
            hold_s: how long the broker may wait for a message if there is none.

        Raises:
            remoting.message.errors.MessageMalformed: the answer has a damaged record, or a body
                with a wrong CRC. Ask for fewer messages to get those before it.
        """
        check_queue(_NAME, queue)
        check_number(_NAME, "offset", offset, *INT64, whole=True)
        check_number(_NAME, "most", most, 1, MOST_INT32, whole=True)
        check_number(_NAME, "hold_s", hold_s, 0, MOST_INT32)
        wanted = self._wanted(queue.topic, tags)
        command = requests.pull(
            self.group,
            queue,
            offset,
            wanted,
            most=most,
            hold_ms=round(hold_s * 1000),
        )
        reply = await call_master(
            self._client,
            queue,
            command,
            "pull",
            accepted=PULL_CODES,
            timeout_s=hold_s + CALL_TIMEOUT_S,
            attempt_s=hold_s + ATTEMPT_TIMEOUT_S,
            is_held=True,
        )
        result = await read_beside(
            self._client.side_work, partial(read_pull_reply, reply, queue, wanted)
        )
        if self._metrics is not None:
            lag = max(result.max_offset - result.next_offset, 0)
            self._metrics.pulled(self.group, queue, len(result.messages), len(reply.body), lag)
        return result

    def _wanted(self, topic: str, tags: str | Sql) -> SubscriptionData:
        if self._last_wanted is None or self._last_wanted[0] != (topic, tags):
            self._last_wanted = (topic, tags), subscription(topic, tags)
        return self._last_wanted[1]

    @during_block
    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the first queue offset that the broker still holds.

        Raises:
            QueueNotFound: the topic does not have this queue, here and in the next two calls.
        """
        return await self._number(queue, requests.min_offset, "give the first offset")

    @during_block
    async def next_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored."""
        return await self._number(queue, requests.max_offset, "give the last offset")

    @renamed_arguments(timestamp_milliseconds="timestamp_ms")
    @during_block
    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first queue offset stored at a time or later, in milliseconds since 1970."""
        check_number(_NAME, "timestamp_ms", timestamp_ms, *INT64, whole=True)
        command = partial(requests.search_offset, timestamp_ms=timestamp_ms)
        return await self._number(queue, command, "find the offset of a time")

    @during_block
    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset, or None if it never committed one."""
        check_queue(_NAME, queue)
        return await self._offsets.load(queue)

    @during_block
    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's progress: the next offset to consume."""
        check_queue(_NAME, queue)
        check_number(_NAME, "offset", offset, *INT64, whole=True)
        command = requests.update_offset(self.group, queue, offset)
        await call_master(self._client, queue, command, "commit an offset")

    async def _number(
        self, queue: MessageQueue, make: Callable[[MessageQueue], Command], what: str
    ) -> int:
        """Return the offset that a broker answers; it answers 0 also for a queue that is not
        there.
        """
        check_queue(_NAME, queue)
        reply = await call_master(self._client, queue, make(queue), what)
        routes = self._client.routes
        if not _has(await routes.find(queue.topic), queue) and not _has(
            await routes.refresh(queue.topic), queue
        ):
            raise QueueNotFound(queue, routes.nameservers)
        return reply.integer("offset")


def _has(route: ClientRoute, queue: MessageQueue) -> bool:
    return queue in route.read_queues or queue in route.write_queues
