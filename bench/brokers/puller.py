"""A light client that pulls all messages of a topic: nearly all processor time is the brokers'.

It sends what RocketMQ's Java client of version 4.9 sends: a heartbeat, and pulls of 32 messages
with one under way for each queue, each of which brings along how far the group has come. It looks
at the header of an answer and not at its messages.
"""

from __future__ import annotations

import socket
import time

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
from bench.one_run import RunFailed
from remoting.bodies.heartbeat import ConsumerData, Heartbeat, SubscriptionData, encode_heartbeat
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.frame import encode_command

_PULL = (
    '{{"code":11,"extFields":{{"queueId":"{queue}","maxMsgNums":"32","sysFlag":"{flag}",'
    '"suspendTimeoutMillis":"15000","commitOffset":"{offset}","bname":"bench","topic":"{topic}",'
    '"queueOffset":"{offset}","expressionType":"TAG","subVersion":"0",'
    '"consumerGroup":"{group}"}},"flag":0,"language":"JAVA","opaque":{queue},'
    '"serializeTypeCurrentRPC":"JSON","version":409}}'
)
_COMMIT_AND_WAIT = 3
_WAIT = 2

# Answers to pulls have the number of their queue instead.
HEARTBEAT_OPAQUE = 1_000_000


def pull_all(address: str, topic: str, queues: int, count: int) -> float:
    """Pull `count` messages of a topic as a new group; return the seconds. Raises RunFailed."""
    group = f"bench_puller_{time.monotonic_ns()}"
    with connected(address) as connection:
        connection.sendall(heartbeat(group, topic))
        began = time.monotonic()
        _Puller(connection, group, topic, queues).run(count)
        return time.monotonic() - began


def heartbeat(group: str, topic: str) -> bytes:
    data = ConsumerData(group, subscriptions=[SubscriptionData(topic)])
    body = encode_heartbeat(Heartbeat("127.0.0.1@puller", [], [data]))
    return encode_command(Command(RequestCode.HEART_BEAT, {}, body, opaque=HEARTBEAT_OPAQUE))


def pull_header(group: str, topic: str, queue: int, offset: int) -> bytes:
    """Return the header of a pull of 32 messages, which commits the offset and waits."""
    flag = _COMMIT_AND_WAIT if offset else _WAIT
    return _PULL.format(queue=queue, flag=flag, offset=offset, topic=topic, group=group).encode()


class _Puller:
    def __init__(self, connection: socket.socket, group: str, topic: str, queues: int) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._offsets = [0] * queues
        self._frames = Frames()

    def run(self, count: int) -> None:
        """Pull at least `count` messages. Raises OSError, RunFailed."""
        self._await_heartbeat()
        self._connection.sendall(b"".join(map(self._pull, range(len(self._offsets)))))
        while sum(self._offsets) < count:
            for header in self._headers():
                self._connection.sendall(self._next_pull(header))

    def _await_heartbeat(self) -> None:
        while not any(number(OPAQUE, header) == HEARTBEAT_OPAQUE for header in self._headers()):
            pass

    def _pull(self, queue: int) -> bytes:
        return frame(pull_header(self._group, self._topic, queue, self._offsets[queue]))

    def _next_pull(self, header: bytes) -> bytes:
        if b'"nextBeginOffset"' not in header:
            if number(CODE, header) == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                return b""
            raise RunFailed(f"a pull was answered with {header!r:.300}")
        if number(CODE, header) != ResponseCode.SUCCESS:
            raise RunFailed(f"a pull found no message: {header!r:.300}")
        queue = number(OPAQUE, header)
        self._offsets[queue] = number(NEXT_OFFSET, header)
        return self._pull(queue)

    def _headers(self) -> list[bytes]:
        """Return the headers of the next answers; at least one."""
        headers: list[bytes] = []
        while not headers:
            found = self._frames.take(received(self._connection))
            headers += [header for header, _ in found]
        return headers
