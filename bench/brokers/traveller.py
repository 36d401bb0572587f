"""A light producer and a light consumer in one process: how long messages take end to end.

The producer sends one message at each planned moment, whatever has become of the ones before; the
consumer keeps a pull under way for each queue, as RocketMQ's Java client does. The time counts from
the planned moment, so that a producer that is late does not hide a broker that is slow.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from typing import NamedTuple

from bench.brokers.frames import (
    CODE,
    NEXT_OFFSET,
    OPAQUE,
    Frames,
    connected,
    frame,
    number,
    received,
)
from bench.brokers.puller import HEARTBEAT_OPAQUE, heartbeat, pull_header
from bench.one_run import RunFailed
from remoting.wire.codes import RequestCode, ResponseCode

_SEND = (
    '{{"code":10,"extFields":{{"producerGroup":"bench","topic":"{topic}","defaultTopic":"TBW102",'
    '"defaultTopicQueueNums":"4","queueId":"{queue}","sysFlag":"0","bornTimestamp":"{born}",'
    '"flag":"0","properties":"","reconsumeTimes":"0","unitMode":"false","batch":"false"}},"flag":0,'
    '"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":409}}'
)
_NOT_THERE_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)

_WARM_UP_S = 3.0
# How long after the last send messages may come.
_GRACE_S = 10.0

# In a stored message: the size of the whole, and the body's; source: `remoting.message.record`.
_SIZE = struct.Struct(">i")
_BODY_AT = 88
_PLANNED = struct.Struct(">q")  # ns; a body begins with it


class Travel(NamedTuple):
    """Sorted times of all measured messages, in ms, and the number of all sent messages."""

    times_ms: list[float]
    messages: int

    def percentile_ms(self, percent: float) -> float:
        return self.times_ms[min(len(self.times_ms) - 1, int(len(self.times_ms) * percent / 100))]


def travel(
    address: str,
    topic: str,
    queues: int,
    rate: int,
    measured_s: float,
    body_bytes: int = 1024,
    warm_up_s: float = _WARM_UP_S,
) -> Travel:
    """Send `rate` messages a second, and consume them as a new group. Raises RunFailed."""
    with (
        connected(address) as sending,
        connected(address) as pulling,
        selectors.DefaultSelector() as selector,
    ):
        consumer = _Consumer(pulling, topic, queues)
        producer = _Producer(sending, topic, queues, rate, bytes(body_bytes))
        for each in (consumer, producer):
            selector.register(each.connection, selectors.EVENT_READ, each)
        consumer.begin()
        return _run(selector, producer, consumer, measured_s, warm_up_s)


def _run(
    selector: selectors.BaseSelector,
    producer: _Producer,
    consumer: _Consumer,
    measured_s: float,
    warm_up_s: float,
) -> Travel:
    began_ns = time.monotonic_ns()
    end_ns = began_ns + int((warm_up_s + measured_s) * 1e9)
    last_ns = end_ns + int(_GRACE_S * 1e9)
    while True:
        now_ns = time.monotonic_ns()
        next_ns = producer.send_due(began_ns, min(now_ns, end_ns))
        if now_ns >= end_ns and consumer.received >= producer.sent:
            break
        if now_ns >= last_ns:
            missing = producer.sent - consumer.received
            raise RunFailed(f"{missing} of {producer.sent} messages have not come")
        until_ns = next_ns if now_ns < end_ns else last_ns
        for key, _ in selector.select(max(0, until_ns - now_ns) / 1e9):
            key.data.receive()
    measured_ns = began_ns + int(warm_up_s * 1e9)
    times_ms = sorted(
        (arrived - planned) / 1e6 for planned, arrived in consumer.times if planned >= measured_ns
    )
    if not times_ms:
        raise RunFailed("no message was measured")
    return Travel(times_ms, producer.sent)


class _Producer:
    def __init__(
        self, connection: socket.socket, topic: str, queues: int, rate: int, body: bytes
    ) -> None:
        self.connection = connection
        self.sent = 0
        self._topic = topic
        self._queues = queues
        self._pause_ns = 1_000_000_000 // rate
        self._rest = body[_PLANNED.size :]
        self._frames = Frames()

    def send_due(self, began_ns: int, now_ns: int) -> int:
        """Send the messages that are due; return when the next one is."""
        due = []
        planned_ns = began_ns + self.sent * self._pause_ns
        while planned_ns < now_ns:
            header = _SEND.format(
                topic=self._topic,
                queue=self.sent % self._queues,
                born=time.time_ns() // 1_000_000,
                opaque=self.sent,
            )
            due.append(frame(header.encode(), _PLANNED.pack(planned_ns) + self._rest))
            self.sent += 1
            planned_ns += self._pause_ns
        if due:
            self.connection.sendall(b"".join(due))
        return planned_ns

    def receive(self) -> None:
        """Raises RunFailed when a message was refused."""
        for header, _ in self._frames.take(received(self.connection)):
            if number(CODE, header) != ResponseCode.SUCCESS:
                raise RunFailed(f"a send was answered with {header!r:.300}")


class _Consumer:
    """Keeps one pull in flight for each queue.

    Attributes:
        times: when each message was planned, and when it came; in nanoseconds.
    """

    def __init__(self, connection: socket.socket, topic: str, queues: int) -> None:
        self.connection = connection
        self.times: list[tuple[int, int]] = []
        self._topic = topic
        self._group = f"bench_traveller_{time.monotonic_ns()}"
        self._offsets = [0] * queues
        self._frames = Frames()

    @property
    def received(self) -> int:
        return len(self.times)

    def begin(self) -> None:
        """Join as a new group. The first pulls follow the answer."""
        self.connection.sendall(heartbeat(self._group, self._topic))

    def receive(self) -> None:
        """Raises RunFailed."""
        answers = self._frames.take(received(self.connection))
        now_ns = time.monotonic_ns()
        again = [self._take(header, body, now_ns) for header, body in answers]
        if any(again):
            self.connection.sendall(b"".join(again))

    def _take(self, header: bytes, body: bytes, now_ns: int) -> bytes:
        opaque, code = number(OPAQUE, header), number(CODE, header)
        if code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return b""
        if opaque == HEARTBEAT_OPAQUE:
            return b"".join(map(self._pull, range(len(self._offsets))))
        if code == ResponseCode.SUCCESS:
            self._offsets[opaque] = number(NEXT_OFFSET, header)
            at = 0
            while at < len(body):
                (planned_ns,) = _PLANNED.unpack_from(body, at + _BODY_AT)
                self.times.append((planned_ns, now_ns))
                at += _SIZE.unpack_from(body, at)[0]
        elif code not in _NOT_THERE_YET:
            raise RunFailed(f"a pull was answered with {header!r:.300}")
        return self._pull(opaque)

    def _pull(self, queue: int) -> bytes:
        return frame(pull_header(self._group, self._topic, queue, self._offsets[queue]))
