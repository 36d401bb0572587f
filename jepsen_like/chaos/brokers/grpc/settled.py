"""Consumers that acknowledge messages in time or late, hide them, and note all of that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from jepsen_like.chaos.brokers.grpc.connection import CallBroken
from jepsen_like.chaos.brokers.grpc.messages import INVISIBLE_S, PAUSE_S, GrpcMessages
from jepsen_like.chaos.brokers.grpc.producer import asked
from jepsen_like.chaos.brokers.grpc.proxies import Proxies
from jepsen_like.chaos.service import CallFailed
from jepsen_like.checkers.settled import ACKNOWLEDGE, HIDE
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import Value
from proxy.wire.messages_pb2 import (
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Message,
    MessageQueue,
)

# Of so many messages one is hidden shortly and left, one is kept for long, and one is acknowledged
# late: when it is hidden shortly, and was given again to a consumer that still has it.
EVERY: Final = 8
LEFT, KEPT, LATE = range(3)
SHORT_MS, LONG_MS = 1_000, 20_000
# After so long a message that was hidden shortly was given again, as a rule.
LATE_S: Final = 3.0
# Later deliveries are acknowledged at once: a message that is given 17 times is a dead letter.
LATE_MAX: Final = 2


class Settled(GrpcMessages):
    """Plain messages. What one proxy has given is settled by that one or by the next."""

    async def _consume(self, client: Proxies, process: int) -> None:
        async with self._client(process + 1) as other, trio.open_nursery() as nursery:
            settle = partial(self._settle_from, (client, other), nursery, process)
            await self._consume_by(client, settle)

    async def _settle_from(
        self,
        clients: Sequence[Proxies],
        nursery: trio.Nursery,
        process: int,
        queue: MessageQueue,
    ) -> None:
        given: list[Message] = []

        async def receive() -> Value:
            try:
                given.extend(await self._received(clients[0], queue))
            except CallBroken as broken:  # what it was given comes again
                raise CallFailed(str(broken)) from broken
            return tuple(map(_delivery, given))

        asked_for = {"invisible_ms": INVISIBLE_S * 1000}
        outcome = await self._notes.take(process, None, asked_for, receive)
        if outcome is not EventType.OK:
            await trio.sleep(PAUSE_S)
        for message in given:
            nursery.start_soon(self._settle, clients, process, message)

    async def _settle(self, clients: Sequence[Proxies], process: int, message: Message) -> None:
        number = int(message.body)
        client = clients[number // EVERY % len(clients)]
        how = number % EVERY
        delivery = message.system_properties.delivery_attempt
        if delivery == 1 and how <= LATE:
            await self._hide(client, process, message, LONG_MS if how == KEPT else SHORT_MS)
            if how == LEFT:
                return
        if delivery <= LATE_MAX and how == LATE:
            await trio.sleep(LATE_S)
        await self._notes.call(
            self._notes.beside(process),
            ACKNOWLEDGE,
            None,
            _delivery(message),
            lambda: self._acknowledge(client, message),
        )

    async def _hide(
        self, client: Proxies, process: int, message: Message, invisible_ms: int
    ) -> None:
        request = ChangeInvisibleDurationRequest(
            group=self._group_resource,
            topic=self._topic_resource,
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
        )
        request.invisible_duration.FromMilliseconds(invisible_ms)
        await self._notes.call(
            self._notes.beside(process),
            HIDE,
            None,
            {**_delivery(message), "invisible_ms": invisible_ms},
            lambda: asked(client, request, ChangeInvisibleDurationResponse, self._topic),
        )


def _delivery(message: Message) -> dict[str, int]:
    """Return a message as histories have it: where it is stored, and which delivery this is."""
    system = message.system_properties
    return {
        "id": int(message.body),
        "queue": system.queue_id,
        "offset": system.queue_offset,
        "delivery": system.delivery_attempt,
    }
