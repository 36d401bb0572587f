"""How clients of a broker send requests, and the fields of some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.pulls.request import SUBSCRIPTION_FLAG, SUSPEND_FLAG
from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.client_history import ClientHistory
from jepsen_like.simulation.broker.served_broker import Client, ServedBroker
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import EventLoop
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials

PRODUCERS = "P"
# How long a client waits for an answer before it asks again.
PATIENCE_S = 1.0
MOST_PULLED = 4
HOLD_MS = 500


class Waits(Protocol):
    """A client that asks one question after another.

    Attributes:
        asks_until: it waits for an answer until then.
        era: answers to questions of an earlier era are ignored.
    """

    asks_until: float
    era: int


@dataclass(frozen=True, slots=True)
class ClientRun:
    """The objects that all clients of a run share; `history` is what they sent and were told."""

    seed: int
    history: ClientHistory
    coverage: Coverage
    loop: EventLoop

    def chance(self, purpose: str) -> Chance:
        return Chance(self.seed, purpose)

    def ask(
        self,
        broker: ServedBroker,
        code: RequestCode,
        fields: Mapping[str, object],
        body: bytes = b"",
        then: Callable[[Command], None] = lambda _reply: None,
        user: Credentials | None = None,
    ) -> None:
        """Send a request of a user, or of the administrator; call `then` with the reply."""

        def answered(reply: Command) -> None:
            code = ResponseCode(reply.code).name.lower().replace("_", " ")
            self.coverage.count(f"answers: {code}")
            then(reply)

        texts = {name: str(value) for name, value in fields.items()}
        command = Command(code, texts, body)
        if user is not None:
            user.sign(command)
        broker.ask(Client(answered), [command])

    def question(self, asker: Waits, then: Callable[[Command], None]) -> Callable[[Command], None]:
        """Return the callback for the answer to a question that is asked now."""
        era = asker.era
        asker.asks_until = self.loop.now + PATIENCE_S

        def answered(reply: Command) -> None:
            if asker.era == era:
                asker.asks_until = 0.0
                then(reply)

        return answered


def send_fields(topic: str, queue_id: int, properties: str) -> dict[str, object]:
    """Return the fields of a send; a queue below 0 lets the broker choose one."""
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


def pull_fields(
    chance: Chance, group: str, topic: str, queue_id: int, offset: int, flags: int = 0
) -> dict[str, object]:
    """Return the fields of a pull of some messages, which the broker may hold."""
    waits = chance.happens(0.5)
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 1 + chance.randrange(MOST_PULLED),
        "sysFlag": flags | SUBSCRIPTION_FLAG | (SUSPEND_FLAG if waits else 0),
        "suspendTimeoutMillis": HOLD_MS if waits else 0,
        "commitOffset": 0,
        "subscription": "*",
        "subVersion": 1,
    }


def commit_fields(group: str, topic: str, queue_id: int, offset: int) -> dict[str, object]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "commitOffset": offset,
    }
