"""Traffic by proxies: consumers that receive and acknowledge, and what they consume."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Final
from uuid import uuid4

import trio

from jepsen_like.chaos.brokers.begun import is_delivery
from jepsen_like.chaos.brokers.grpc.connection import CallBroken
from jepsen_like.chaos.brokers.grpc.producer import GrpcProducer
from jepsen_like.chaos.brokers.grpc.proxies import Proxies, proxies
from jepsen_like.chaos.brokers.made_topic import MadeTopic
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import (
    TOPIC,
    Delayed,
    Messages,
    Ordered,
    Transactional,
)
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value
from proxy.wire.messages_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ClientType,
    Code,
    Endpoints,
    FilterExpression,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    MessageQueue,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
)
from remoting.net.address import parse_address

ASK_TIMEOUT_S: Final = 3.0
WAIT_S: Final = 5
# A message that a consumer was given and did not acknowledge comes again after this time.
INVISIBLE_S: Final = 15
BATCH: Final = 16
PAUSE_S: Final = 0.2
BEAT_EVERY_S: Final = 5.0
# An acknowledgement is tried at one proxy after the other; then the message comes again.
ACK_TRIES: Final = 3
# What a part of an answer to a receive has: 0 stands for a part without a status.
_NOTHING_WRONG: Final = frozenset({0, Code.OK, Code.MESSAGE_NOT_FOUND})

_log = logging.getLogger(__name__)


class GrpcMessages(Messages):
    """Plain messages of producers, and of consumers that receive and acknowledge.

    Consumers say how long they will work on a message. If proxies renewed for them, those of a
    killed consumer would come again after three minutes. `message_type` is that of the topic, and
    `in_order` whether its group consumes in order.
    """

    longest_wait_s = INVISIBLE_S + 15.0
    message_type: ClassVar[str | None] = None
    in_order: ClassVar[bool] = False

    def __init__(
        self,
        notes: Notes,
        nameservers: Sequence[str],
        addresses: Sequence[str],
        topic: str = TOPIC,
    ) -> None:
        super().__init__(notes, nameservers, topic)
        self._addresses = addresses
        # A group that is made by its first receive begins with the messages that come then.
        self._topic_once = MadeTopic(
            nameservers,
            topic,
            self._group,
            message_type=self.message_type,
            in_order=self.in_order,
        )

    def go_on(self, operations: Sequence[Operation]) -> None:
        # A consumer of another topic receives nothing while this one is made; sends come after all.
        self._topic_once.is_made = any(not is_delivery(one) for one in operations)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[GrpcProducer]:
        await self._topic_once.made()
        async with self._client(0) as client:
            yield GrpcProducer(client)

    def key_of(self, message: Any) -> Value:
        return None

    def _client(self, place: int) -> Any:
        return proxies(self._addresses, place, f"chaos@{uuid4().hex}")

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        """Be a member of the group. What a member is given when it leaves comes again."""
        await self._topic_once.made()
        async with self._client(process) as client, trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, client)
            nursery.start_soon(self._consume, client, process)
            yield
            nursery.cancel_scope.cancel()

    async def _consume(self, client: Proxies, process: int) -> None:
        await self._consume_by(client, partial(self._consume_from, client, process))

    async def _consume_by(
        self, client: Proxies, consume_from: Callable[[MessageQueue], Awaitable[None]]
    ) -> None:
        while True:
            try:
                for queue in await self._assigned(client):
                    await consume_from(queue)
            except CallBroken as broken:
                _log.info("a consumer asks again: %s", broken)
                await trio.sleep(PAUSE_S)

    async def _assigned(self, client: Proxies) -> list[MessageQueue]:
        request = QueryAssignmentRequest(
            topic=self._topic_resource, group=self._group_resource, endpoints=self._endpoints()
        )
        (answer,) = await client.ask(request, QueryAssignmentResponse, ASK_TIMEOUT_S)
        if answer.status.code != Code.OK:
            await trio.sleep(PAUSE_S)  # no broker leads
        return [one.message_queue for one in answer.assignments]

    @property
    def _topic_resource(self) -> Resource:
        return Resource(name=self._topic)

    @property
    def _group_resource(self) -> Resource:
        return Resource(name=self._group)

    def _endpoints(self) -> Endpoints:
        made = Endpoints()
        for host, port in map(parse_address, self._addresses):
            made.addresses.add(host=host, port=port)
        return made

    async def _consume_from(self, client: Proxies, process: int, queue: MessageQueue) -> None:
        for message in await self._received(client, queue):
            self._notes.receive(process, self.key_of(message), [int(message.body)])
            await self._acknowledge(client, message)

    async def _received(self, client: Proxies, queue: MessageQueue) -> list[Message]:
        """Return messages; none if none came in time. Raises CallBroken."""
        request = ReceiveMessageRequest(
            group=self._group_resource,
            message_queue=queue,
            filter_expression=FilterExpression(type=FilterType.TAG, expression="*"),
            batch_size=BATCH,
        )
        request.invisible_duration.FromSeconds(INVISIBLE_S)
        request.long_polling_timeout.FromSeconds(WAIT_S)
        parts = await client.ask(request, ReceiveMessageResponse, WAIT_S + ASK_TIMEOUT_S)
        given = [part.message for part in parts if part.WhichOneof("content") == "message"]
        if not given and any(part.status.code not in _NOTHING_WRONG for part in parts):
            await trio.sleep(PAUSE_S)
        return given

    async def _acknowledge(self, client: Proxies, message: Message) -> bool:
        """Return whether a proxy says that it is acknowledged."""
        system = message.system_properties
        entry = AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
        request = AckMessageRequest(
            group=self._group_resource, topic=self._topic_resource, entries=[entry]
        )
        for _ in range(ACK_TRIES):
            try:
                (answer,) = await client.ask(request, AckMessageResponse, ASK_TIMEOUT_S)
            except CallBroken as broken:
                _log.info("an acknowledgement is repeated: %s", broken)
            else:
                if answer.status.code == Code.OK:
                    return True
                if answer.status.code == Code.INVALID_RECEIPT_HANDLE:
                    return False
            await trio.sleep(PAUSE_S)
        return False

    async def _beat(self, client: Proxies) -> None:
        """Tell that the consumer lives, as clients do."""
        request = HeartbeatRequest(
            group=self._group_resource, client_type=ClientType.SIMPLE_CONSUMER
        )
        while True:
            try:
                await client.ask(request, HeartbeatResponse, ASK_TIMEOUT_S)
            except CallBroken as broken:
                _log.info("a heartbeat was not answered: %s", broken)
            await trio.sleep(BEAT_EVERY_S)


class GrpcOrdered(GrpcMessages, Ordered):
    """Messages of message groups, and a group that consumes in order."""

    message_type = "FIFO"
    in_order = True

    def key_of(self, message: Any) -> Value:
        group: str = message.system_properties.message_group
        return group


class GrpcDelayed(GrpcMessages, Delayed):
    longest_wait_s = GrpcMessages.longest_wait_s + Delayed.delays_ms[1] / 1000
    message_type = "DELAY"


class GrpcTransactional(GrpcMessages, Transactional):
    """Transactions that the producer ends, or leaves open for good."""

    message_type = "TRANSACTION"
