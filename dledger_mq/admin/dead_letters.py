"""Has dead letters delivered once more, batch by batch."""

from collections.abc import Callable
from dataclasses import dataclass, fields
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
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

DEAD_LETTER_TOPIC_PREFIX: Final = "%DLQ%"

LAST_MS: Final = (1 << 63) - 1

# Of one request; each is one append of the brokers.
_BATCH: Final = 128

# Message ids in one request.
MAX_IDS: Final = 1000

# A request whose outcome nobody knows is sent again: what was stored is not stored again.
_BATCH_TIMEOUT_S: Final = 15.0
_MAX_UNKNOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Redriven:
    """How far dead letters are delivered once more.

    Attributes:
        redriven: were delivered now; with `dry_run`, would be.
        taken: were delivered once more before. A batch that had to be sent again, since its answer
            was lost, counts here.
        passed_over: were not asked for.
        without_topic: do not say which topic they were sent to, or it is gone; they stay.
        left: have not been looked at yet.
        never_stored: no entry of the broker's log can hold any more, or they cannot be read; they
            stay.
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
        request: for so many dead letters of a queue from an offset on: `requests.redrive`, with
            what is chosen of them.
    """

    def __init__(
        self, client: Client, group: str, request: Callable[[MessageQueue, int, int], Command]
    ) -> None:
        self._client = client
        self._group = group
        self._request = request

    async def run(self, most: int | None, on_progress: Callable[[Redriven], None]) -> Redriven:
        """Go through them; `on_progress` is called after each batch. Raises NoDeadLetters."""
        try:
            route = await self._client.routes.refresh(DEAD_LETTER_TOPIC_PREFIX + self._group)
        except NoBrokerLeads:
            raise
        except RouteNotFound as error:  # the topic is made by the first dead letter
            raise NoDeadLetters(self._group, error.topic, error.nameservers) from None
        # What dies while this runs is left for the next time: it might never end.
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
        """One request, until its outcome is known."""
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


def counts_of(redriven: Redriven) -> dict[str, int]:
    """The counts by name."""
    return {one.name: getattr(redriven, one.name) for one in fields(redriven)}
