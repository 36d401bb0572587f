"""Light senders on one connection: nearly all processor time is the brokers'.

As the threads of one Java client, each sends its next message when the last one was answered.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from statistics import median
from typing import NamedTuple

from bench.brokers.frames import CODE, OPAQUE, Frames, connected, frame, number, received
from bench.one_run import RunFailed
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import ACCESS_KEY, SIGNATURE, Credentials

_SEND = (
    '{{"code":{code},"extFields":{{"a":"bench","b":"{topic}","c":"TBW102","d":"4","e":"{queue}",'
    '"f":"0","g":"{born}","h":"0","i":"UNIQ_KEY\\u00017F000001{opaque:024X}\\u0002WAIT\\u0001true",'
    '"j":"0","k":"false","m":"{batch}","n":"bench"{signed}}},"flag":0,"language":"JAVA",'
    '"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":409}}'
)


class Sent(NamedTuple):
    """What senders did.

    Attributes:
        requests: how many were answered.
        took_s: from the first request to the last answer.
        median_ms: of the time to an answer.
    """

    requests: int
    took_s: float
    median_ms: float


class Senders:
    """Several senders. A request is for each queue in turn.

    Args:
        body: of each request: a message, or a batch of several.
        credentials: sign each request; None for none.
    """

    def __init__(
        self,
        connection: socket.socket,
        topic: str,
        queues: int,
        body: bytes,
        is_batch: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._connection = connection
        self._topic, self._queues, self._body, self._is_batch = topic, queues, body, is_batch
        self._frames = Frames()
        self._made = 0
        self._ready: deque[tuple[int, bytes]] = deque()
        self._sent_at: dict[int, float] = {}

    def prepare(self, requests: int) -> None:
        """Make so many requests now, so that `send` takes no time for them.

        Brokers serve together what arrives together: a load that takes longer to sign its requests
        would make their work for each message dearer, and not by checking.
        """
        self._ready.extend(self._next() for _ in range(requests))

    def send(self, senders: int, *, for_s: float = 0.0, requests: int = 0) -> Sent:
        """Send for some seconds, or so many requests; return when all are answered. Raises
        RunFailed.
        """
        began = time.perf_counter()
        times: list[float] = []
        first, due = self._made - len(self._ready), senders
        while due or self._sent_at:
            if due:
                self._connection.sendall(b"".join([self._take() for _ in range(due)]))
            answered = self._frames.take(received(self._connection))
            now = time.perf_counter()
            for header, _ in answered:
                if number(CODE, header) != ResponseCode.SUCCESS:
                    raise RunFailed(f"a send was answered with {header!r:.300}")
                times.append(now - self._sent_at.pop(number(OPAQUE, header)))
            is_over = now - began >= for_s
            sent = self._made - len(self._ready) - first
            left = max(0, requests - sent) if is_over else len(answered)
            due = min(len(answered), left)
        return Sent(len(times), time.perf_counter() - began, median(times) * 1000)

    def _take(self) -> bytes:
        opaque, request = self._ready.popleft() if self._ready else self._next()
        self._sent_at[opaque] = time.perf_counter()
        return request

    def _next(self) -> tuple[int, bytes]:
        opaque = self._made
        self._made += 1
        values = {
            "code": int(
                RequestCode.SEND_BATCH_MESSAGE if self._is_batch else RequestCode.SEND_MESSAGE_V2
            ),
            "batch": "true" if self._is_batch else "false",
            "topic": self._topic,
            "queue": opaque % self._queues,
            "born": time.time_ns() // 1_000_000,
            "opaque": opaque,
            "signed": "",
        }
        if self._credentials is not None:
            fields = json.loads(_SEND.format(**values))["extFields"]
            signed = Command(0, fields, self._body)
            self._credentials.sign(signed)
            both = {name: signed.fields[name] for name in (ACCESS_KEY, SIGNATURE)}
            values["signed"] = "," + json.dumps(both)[1:-1]
        return opaque, frame(_SEND.format(**values).encode(), self._body)


def fill(address: str, topic: str, queues: int, batch_body: bytes, batches: int) -> None:
    """Send batches, sixteen at a time. Raises RunFailed."""
    with connected(address) as connection:
        Senders(connection, topic, queues, batch_body, is_batch=True).send(16, requests=batches)
