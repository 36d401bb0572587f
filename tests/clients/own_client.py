"""What scenarios do with this project's own client, by remoting."""

import json
import queue
import time
from collections.abc import Mapping
from typing import NamedTuple

import trio

from dledger_mq import (
    Admin,
    Client,
    ConsumeFrom,
    ConsumeResult,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from dledger_mq.connection import requests
from dledger_mq.errors import MessagingError
from proxy.brokers.brokers import Brokers
from remoting.bodies.topic_config import PERMISSION_READ_WRITE, TopicConfig
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials
from tests.clients.client_script import Failed

QUEUES = 4
TRIES = 3


class Own(NamedTuple):
    """Which name server this project's own client asks, and as which user."""

    names: str
    credentials: Credentials | None


def make_topic(own: Own, topic: str, kind: str) -> None:
    """Make a topic for messages of a kind.

    On a busy machine a leader may step down meanwhile, so it is tried again.
    """
    for left in reversed(range(TRIES)):
        try:
            asking = Admin(nameservers=own.names, credentials=own.credentials)
            with blocking.open_admin(asking) as admin:
                admin.create_topic(topic, queues=QUEUES, message_type=kind.upper())
            return
        except MessagingError:
            if not left:
                raise


def make_group(
    own: Own,
    topic: str,
    group: str,
    *,
    in_order: bool = False,
    retries: int = 16,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Make a group on the brokers of a topic."""
    body = {
        "groupName": group,
        "consumeMessageOrderly": in_order,
        "retryMaxTimes": retries,
        "attributes": {f"+{name}": value for name, value in (attributes or {}).items()},
    }
    asked = requests.command(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(body).encode()
    )
    ask(own, topic, asked, "make a group")


def end_lite_topics_after(own: Own, topic: str, minutes: int) -> None:
    """Have the lite topics of a topic end so long after their last message."""
    asked = requests.create_topic(TopicConfig(topic, QUEUES, QUEUES, PERMISSION_READ_WRITE), "LITE")
    asked.fields["attributes"] += f",+lite.topic.expiration={minutes}"
    ask(own, topic, asked, "change a topic")


def lite_topic_exists(own: Own, topic: str, name: str) -> bool:
    """Whether a lite topic has not ended, at the broker of a topic."""
    asked = requests.command(RequestCode.GET_LITE_TOPIC_INFO, parentTopic=topic, liteTopic=name)
    told = json.loads(ask(own, topic, asked, "describe a lite topic").body)
    return bool(told["topicOffset"]["maxOffset"] > 0)


def ask(own: Own, topic: str, asked: Command, what: str) -> Command:
    """Ask a broker of a topic; its answer."""

    async def run() -> Command:
        async with Client(own.names, credentials=own.credentials) as client:
            return await Brokers(client, is_user=False).ask_any(None, topic, asked, what)

    return trio.run(run)


def send(own: Own, messages: list[Message]) -> None:
    """Send messages; the bodies of large ones are compressed."""
    sending = Producer("own-senders", nameservers=own.names, credentials=own.credentials)
    with blocking.open_producer(sending) as producer:
        for message in messages:
            producer.send(message)


def consume(
    own: Own,
    topic: str,
    group: str,
    count: int,
    within_s: float,
) -> list[ReceivedMessage]:
    """Consume so many messages.

    Raises:
        Failed: not so many came.
    """
    came: queue.Queue[ReceivedMessage] = queue.Queue()

    async def listen(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            came.put(message)

    consumer = PushConsumer(
        group,
        topic,
        listen,
        nameservers=own.names,
        credentials=own.credentials,
        consume_from=ConsumeFrom.FIRST,
    )
    with blocking.open_push_consumer(consumer):
        return _all_of(came, count, within_s)


def pop(
    own: Own,
    topic: str,
    group: str,
    count: int,
    within_s: float,
    *,
    is_success: bool = True,
) -> list[ReceivedMessage]:
    """Consume so many messages by pops, or give them back.

    Raises:
        Failed: not so many came.
    """
    came: queue.Queue[ReceivedMessage] = queue.Queue()

    async def listen(messages: list[ReceivedMessage]) -> ConsumeResult:
        for message in messages:
            came.put(message)
        return ConsumeResult.SUCCESS if is_success else ConsumeResult.RETRY

    consumer = PopConsumer(
        group,
        topic,
        listen,
        nameservers=own.names,
        credentials=own.credentials,
        from_first=True,
    )
    with blocking.open_pop_consumer(consumer):
        return _all_of(came, count, within_s)


def _all_of(
    came: queue.Queue[ReceivedMessage], count: int, within_s: float
) -> list[ReceivedMessage]:
    deadline = time.monotonic() + within_s
    found: list[ReceivedMessage] = []
    while len(found) < count:
        try:
            found.append(came.get(timeout=max(deadline - time.monotonic(), 0)))
        except queue.Empty:
            raise Failed(
                f"a remoting client got {len(found)} of {count} messages in {within_s:g} s"
            ) from None
    return found
