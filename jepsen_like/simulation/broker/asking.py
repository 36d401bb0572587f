"""How clients of a broker ask, and the fields of a send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from jepsen_like.simulation.broker.served_broker import ServedBroker
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

PRODUCERS = "P"


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
