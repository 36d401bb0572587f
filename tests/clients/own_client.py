"""What scenarios do with this project's own client, by remoting."""

import json
import queue
import time

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
from remoting.wire.codes import RequestCode
from tests.clients.client_script import Failed

QUEUES = 4
TRIES = 3


def make_topic(names: str, topic: str, kind: str) -> None:
    """Make a topic for messages of a kind.

    On a busy machine a leader may step down meanwhile, so it is tried again.
    """
    for left in reversed(range(TRIES)):
        try:
            with blocking.open_admin(Admin(nameservers=names)) as admin:
                admin.create_topic(topic, queues=QUEUES, message_type=kind.upper())
            return
        except MessagingError:
            if not left:
                raise


def make_group(
    names: str, topic: str, group: str, *, in_order: bool = False, retries: int = 16
) -> None:
    """Make a group on the brokers of a topic."""
    body = {
        "groupName": group,
        "consumeMessageOrderly": in_order,
        "retryMaxTimes": retries,
    }
    asked = requests.command(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(body).encode()
    )

    async def run() -> None:
        async with Client(names) as client:
            await Brokers(client, is_user=False).ask_any(None, topic, asked, "make a group")

    trio.run(run)


def send(names: str, messages: list[Message]) -> None:
    """Send messages; the bodies of large ones are compressed."""
    with blocking.open_producer(Producer("own-senders", nameservers=names)) as producer:
        for message in messages:
            producer.send(message)


def consume(
    names: str,
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

    consumer = PushConsumer(group, topic, listen, nameservers=names, consume_from=ConsumeFrom.FIRST)
    with blocking.open_push_consumer(consumer):
        return _all_of(came, count, within_s)


def pop(
    names: str,
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

    consumer = PopConsumer(group, topic, listen, nameservers=names, from_first=True)
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
