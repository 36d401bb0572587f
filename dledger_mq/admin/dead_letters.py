"""Redelivers dead letters, batch by batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.errors import (
    NoBrokerLeads,
    NoDeadLetters,
    RequestRefused,
    RouteNotFound,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.message.topic_names import DEAD_LETTER_PREFIX
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

LAST_MS: Final = (1 << 63) - 1

# Dead letters of one request; the broker appends an entry for each.
_BATCH: Final = 128

# Message ids in one request.
MAX_IDS: Final = 1000

# A request whose outcome is unknown is sent again: brokers redeliver no dead letter twice.
_BATCH_TIMEOUT_S: Final = 15.0
_MAX_UNKNOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Redriven:
    """The progress of `Admin.redrive`, in dead letters.

    Attributes:
        redriven: redelivered now; with `dry_run`, would be.
        taken: redelivered before. A batch that was sent again because its answer was lost counts
            here.
        passed_over: not asked for.
        without_topic: the original topic is unknown or gone; they stay.
        left: not looked at yet.
        never_stored: too large for an entry of the broker's log, or unreadable; they stay.
    """

    redriven: int = 0
    taken: int = 0
    passed_over: int = 0
    without_topic: int = 0
    left: int = 0
    never_stored: int = 0


class Redrives:
    """Goes through the dead letters of a group.

    Args:
        client: an open client.
        group: the consumer group.
        request: makes the request for a queue, an offset and a number of dead letters:
            `requests.redrive` with its other arguments.
    """

    def __init__(
        self, client: Client, group: str, request: Callable[[MessageQueue, int, int], Command]
    ) -> None:
        self._client = client
        self._group = group
        self._request = request

    async def run(self, most: int | None, on_progress: Callable[[Redriven], None]) -> Redriven:
        """Redeliver at most `most`; call `on_progress` after each batch. Raises NoDeadLetters."""
        try:
            route = await self._client.routes.refresh(DEAD_LETTER_PREFIX + self._group)
        except NoBrokerLeads:
            raise
        except RouteNotFound as error:  # the topic is made by the first dead letter
            raise NoDeadLetters(self._group, error.topic, error.nameservers) from None
        # Messages that become dead letters from now on are left for the next call, or this one
        # might never end.
        ends = {queue: await self._end(queue) for queue in route.read_queues}
        total = Redriven(left=sum(ends.values()))
        for queue, end in ends.items():
            offset = 0
            while offset < end and (most is None or total.redriven < most):
                room = _BATCH if most is None else min(_BATCH, most - total.redriven)
                reply = await self._batch(queue, offset, room)
                next_offset = max(reply.integer("nextOffset"), offset)
                total = Redriven(
                    total.redriven + reply.integer("redriven"),
                    total.taken + reply.integer("taken"),
                    total.passed_over + reply.integer("passedOver"),
                    total.without_topic + reply.integer("withoutTopic"),
                    max(total.left - (next_offset - offset), 0),
                    total.never_stored + reply.integer("neverStored", 0),
                )
                on_progress(total)
                if next_offset == offset:
                    break  # retention has dropped what was there
                offset = next_offset
        return total

    async def _end(self, queue: MessageQueue) -> int:
        reply = await call_master(
            self._client, queue, requests.max_offset(queue), "give the last offset"
        )
        return reply.integer("offset")

    async def _batch(self, queue: MessageQueue, offset: int, most: int) -> Command:
        """Send one request until its outcome is known."""
        command = self._request(queue, offset, most)
        unknown = 0
        while True:
            try:
                return await call_master(
                    self._client,
                    queue,
                    command,
                    "deliver dead letters once more",
                    timeout_s=_BATCH_TIMEOUT_S,
                )
            except RequestRefused as error:
                unknown += 1
                if error.code != ResponseCode.SYSTEM_ERROR or unknown > _MAX_UNKNOWN:
                    raise
                await trio.sleep(pause_s(unknown))
