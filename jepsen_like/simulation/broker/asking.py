"""How clients of a broker ask, and the fields of a send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from jepsen_like.simulation.broker.served_broker import ServedBroker
from jepsen_like.simulation.event_loop import EventLoop
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

PRODUCERS = "P"
# How long a client waits for an answer before it asks again.
PATIENCE_S = 1.0


class Asks(Protocol):
    """Sends a request, and calls `then` with the reply."""

    def __call__(
        self,
        broker: ServedBroker,
        code: RequestCode,
        fields: Mapping[str, object],
        body: bytes = b"",
        then: Callable[[Command], None] = ...,
    ) -> None:
        """Send it."""


class Waits(Protocol):
    """Asks one question after another.

    Attributes:
        asks_until: it waits for an answer until then.
        era: answers to questions of an earlier one are ignored.
    """

    asks_until: float
    era: int


def question(
    asker: Waits, loop: EventLoop, then: Callable[[Command], None]
) -> Callable[[Command], None]:
    """`then` for the answer to a question that is asked now."""
    era = asker.era
    asker.asks_until = loop.now + PATIENCE_S

    def answered(reply: Command) -> None:
        if asker.era == era:
            asker.asks_until = 0.0
            then(reply)

    return answered


def send_fields(topic: str, queue_id: int, properties: str) -> dict[str, object]:
    """The fields of a send; a queue below 0 lets the broker choose one."""
    return {
        "producerGroup": PRODUCERS,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 2,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": properties,
    }
