"""Light clients of gRPC: nearly all processor time is that of the proxy and of its brokers."""

from __future__ import annotations

import selectors
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from bench.http2_client import BenchClient, Requests
from bench.one_run import RunFailed
from proxy.http2.message_reader import PREFIX, PREFIX_BYTES
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    FilterType,
    Language,
    Message,
    MessageType,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    TelemetryCommand,
)

_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"

# RocketMQ's longest wait. Its clients add three seconds for the way, and a busy machine takes more.
POLL_S: Final = 20.0
_POLL_PATIENCE_MS: Final = 40_000
_BATCH: Final = 32
_INVISIBLE_S: Final = 60

_Answer = TypeVar("_Answer", SendMessageResponse, ReceiveMessageResponse)


def client_id(number: int) -> str:
    return f"bench@{number}@0@{time.monotonic_ns()}"


def send_frames(topic: str, body: bytes, count: int) -> list[bytes]:
    """Return the frames of so many sends of one connection."""
    made = Requests(is_huffman=False, client_id=client_id(0))
    request = SendMessageRequest(messages=[Message(body=body)])
    message = request.messages[0]
    message.topic.name = topic
    system = message.system_properties
    system.message_type, system.born_host = MessageType.NORMAL, "bench"
    frames = []
    for _ in range(count):
        system.message_id = f"01{uuid.uuid4().hex[:30].upper()}"
        system.born_timestamp.GetCurrentTime()
        frames.append(made.frames(f"{_SERVICE}SendMessage", request.SerializeToString()))
    return frames


@contextmanager
def connected(port: int) -> Iterator[BenchClient]:
    """Connect to a proxy of this machine. Raises RunFailed when the block raises OSError."""
    try:
        client = BenchClient(port)
        try:
            yield client
        finally:
            client.close()
    except OSError as error:
        raise RunFailed(f"the connection to the proxy: {error}") from None


def send(client: BenchClient, frames: list[bytes], in_flight: int) -> None:
    """Send, and wait for all answers. Raises RunFailed if one is no success."""
    client.run(frames, in_flight, 2)
    for answer in _answers(client, SendMessageResponse):
        if answer.status.code != Code.OK:
            raise RunFailed(f"a send was answered with {answer.status}")


def _answers(client: BenchClient, kind: type[_Answer]) -> Iterator[_Answer]:
    """Yield the messages that came, each of which is in one frame."""
    parts, client.messages = client.messages, []
    for _stream_id, part in parts:
        at = 0
        while at < len(part):
            _flag, size = PREFIX.unpack_from(part, at)
            at += PREFIX_BYTES
            yield kind.FromString(part[at : at + size])
            at += size


class Poller:
    """A consumer with many receives that wait, on one connection.

    Args:
        client: its connection.
        number: of the consumer; it has a group of its own.
        topic: from which it receives.
        broker_name: where.
    """

    def __init__(self, client: BenchClient, number: int, topic: str, broker_name: str) -> None:
        self.group = f"bench_poller_{number}"
        self.ended = 0
        self._client = client
        self._requests = Requests(is_huffman=False, client_id=client_id(number))
        settings = Settings(client_type=ClientType.SIMPLE_CONSUMER)
        settings.subscription.group.name = self.group
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type, entry.expression.expression = FilterType.TAG, "*"
        settings.user_agent.language = Language.PYTHON
        told = TelemetryCommand(settings=settings)
        self._request = ReceiveMessageRequest(batch_size=_BATCH)
        self._request.group.name = self.group
        self._request.message_queue.topic.name = topic
        self._request.message_queue.id = -1
        self._request.message_queue.broker.name = broker_name
        self._request.filter_expression.type = FilterType.TAG
        self._request.filter_expression.expression = "*"
        self._request.invisible_duration.FromSeconds(_INVISIBLE_S)
        self._request.long_polling_timeout.FromMilliseconds(int(POLL_S * 1000))
        opened = self._requests.frames(f"{_SERVICE}Telemetry", None)
        client.post(opened + self._requests.message(1, told.SerializeToString()))
        client.read(1)
        while not client.messages:  # until its settings are known
            client.read(1)
        client.messages = []

    def fileno(self) -> int:
        return self._client.fileno()

    def ask(self, count: int) -> None:
        """Begin so many receives."""
        body = self._request.SerializeToString()
        path = f"{_SERVICE}ReceiveMessage"
        made = [self._requests.frames(path, body, _POLL_PATIENCE_MS) for _ in range(count)]
        self._client.post(b"".join(made))

    def take(self) -> int:
        """Read; return how many receives have ended. Raises RunFailed if one was refused."""
        ended = self._client.read(2)
        for answer in _answers(self._client, ReceiveMessageResponse):
            if answer.status.code not in _NOTHING_CAME:
                raise RunFailed(f"a receive was answered with {answer.status}")
        self.ended += ended
        return ended


_NOTHING_CAME: Final = frozenset({0, Code.MESSAGE_NOT_FOUND})


def keep_asking(pollers: Sequence[Poller], for_s: float) -> int:
    """Ask again whenever a receive ends, for some seconds; return how many have ended.

    Raises RunFailed.
    """
    ended = 0
    until = time.monotonic() + for_s
    with selectors.DefaultSelector() as selector:
        for poller in pollers:
            selector.register(poller, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            for key, _events in selector.select(left):
                asking = key.fileobj
                assert isinstance(asking, Poller)
                count = asking.take()
                asking.ask(count)
                ended += count
    return ended
