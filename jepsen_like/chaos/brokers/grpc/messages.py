"""The workload `messages` with clients of gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import trio

from dledger_mq.errors import OutcomeUnknown
from jepsen_like.chaos.brokers.grpc.connection import CallBroken
from jepsen_like.chaos.brokers.grpc.proxies import Proxies, proxies
from jepsen_like.chaos.brokers.made_topic import MadeTopic
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.workload import (
    GROUP,
    SEND_TIMEOUT_S,
    TOPIC,
    Messages,
    Turn,
    body_of,
)
from jepsen_like.chaos.service import CallFailed
from jepsen_like.history.operation import EventType, Operation
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
    MessageType,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
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

# The codes of requests that are wrong as they are, which no proxy passes on.
_WRONG: Final = range(Code.BAD_REQUEST, Code.UNAUTHORIZED)

_log = logging.getLogger(__name__)


class GrpcMessages(Messages):
    """Plain messages of producers, and of consumers that receive and acknowledge.

    Consumers say how long they will work on a message. If proxies renewed for them, those of a
    killed consumer would come again after three minutes.
    """

    longest_wait_s = INVISIBLE_S + 15.0

    def __init__(self, notes: Notes, nameservers: Sequence[str], addresses: Sequence[str]) -> None:
        super().__init__(notes, nameservers)
        self._addresses = addresses
        # A group that is made by its first receive begins with the messages that come then.
        self._topic_once = MadeTopic(nameservers, TOPIC, GROUP)

    def go_on(self, operations: Sequence[Operation]) -> None:
        self._topic_once.is_made = bool(operations)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Proxies]:
        await self._topic_once.made()
        async with self._client(0) as client:
            yield client

    def _client(self, place: int) -> Any:
        return proxies(self._addresses, place, f"chaos@{uuid4().hex}")

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        number = turn.number

        async def make() -> None:
            await _send(producer, body_of(turn))

        outcome, process = await self._notes.call(turn.process, "send", None, number, make)
        if outcome is EventType.OK:
            self._notes.expect(None, number)
        return outcome, process

    @asynccontextmanager
    async def consumer(self, process: int) -> AsyncIterator[None]:
        """Be a member of the group. What a member is given when it leaves comes again."""
        await self._topic_once.made()
        async with self._client(process) as client, trio.open_nursery() as nursery:
            nursery.start_soon(_beat, client)
            nursery.start_soon(self._receive, client, process)
            yield
            nursery.cancel_scope.cancel()

    async def _receive(self, client: Proxies, process: int) -> None:
        while True:
            try:
                for queue in await self._assigned(client):
                    await self._receive_from(client, process, queue)
            except CallBroken as broken:
                _log.info("a consumer asks again: %s", broken)
                await trio.sleep(PAUSE_S)

    async def _assigned(self, client: Proxies) -> list[MessageQueue]:
        request = QueryAssignmentRequest(
            topic=Resource(name=TOPIC), group=Resource(name=GROUP), endpoints=self._endpoints()
        )
        (answer,) = await client.ask(request, QueryAssignmentResponse, ASK_TIMEOUT_S)
        if answer.status.code != Code.OK:
            await trio.sleep(PAUSE_S)  # no broker leads
        return [one.message_queue for one in answer.assignments]

    def _endpoints(self) -> Endpoints:
        made = Endpoints()
        for host, port in map(parse_address, self._addresses):
            made.addresses.add(host=host, port=port)
        return made

    async def _receive_from(self, client: Proxies, process: int, queue: MessageQueue) -> None:
        request = ReceiveMessageRequest(
            group=Resource(name=GROUP),
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
        for message in given:
            self._notes.receive(process, None, [int(message.body)])
            await _acknowledge(client, message)


# What a part of an answer to a receive has: 0 stands for a part without a status.
_NOTHING_WRONG: Final = frozenset({0, Code.OK, Code.MESSAGE_NOT_FOUND})


async def _send(producer: Proxies, body: bytes) -> None:
    """Send a message. Raises CallFailed if it is certainly not stored, else OutcomeUnknown."""
    system = SystemProperties(message_id=uuid4().hex.upper(), message_type=MessageType.NORMAL)
    system.born_timestamp.GetCurrentTime()
    message = Message(topic=Resource(name=TOPIC), body=body, system_properties=system)
    request = SendMessageRequest(messages=[message])
    try:
        (answer,) = await producer.ask(request, SendMessageResponse, SEND_TIMEOUT_S)
    except CallBroken as broken:
        if broken.is_certain:
            raise CallFailed(str(broken)) from broken
        raise OutcomeUnknown(TOPIC, str(broken), 1) from broken
    code, text = answer.status.code, answer.status.message
    if code in _WRONG:
        raise CallFailed(f"{code}: {text}")
    if code != Code.OK:
        raise OutcomeUnknown(TOPIC, f"{code}: {text}", 1)


async def _acknowledge(client: Proxies, message: Message) -> None:
    system = message.system_properties
    entry = AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
    request = AckMessageRequest(
        group=Resource(name=GROUP), topic=Resource(name=TOPIC), entries=[entry]
    )
    for _ in range(ACK_TRIES):
        try:
            (answer,) = await client.ask(request, AckMessageResponse, ASK_TIMEOUT_S)
        except CallBroken as broken:
            _log.info("an acknowledgement is repeated: %s", broken)
        else:
            if answer.status.code == Code.OK:
                return
        await trio.sleep(PAUSE_S)


async def _beat(client: Proxies) -> None:
    """Tell that the consumer lives, as clients do."""
    request = HeartbeatRequest(group=Resource(name=GROUP), client_type=ClientType.SIMPLE_CONSUMER)
    while True:
        try:
            await client.ask(request, HeartbeatResponse, ASK_TIMEOUT_S)
        except CallBroken as broken:
            _log.info("a heartbeat was not answered: %s", broken)
        await trio.sleep(BEAT_EVERY_S)
