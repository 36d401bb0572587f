"""The measurement of many lite topics, of which one client has subscribed to some."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final

from bench.brokers.asking import Asking
from bench.brokers.bench import Bench, Figure, Row, meter_of
from bench.brokers.failover import outage_ms
from bench.brokers.frames import connected, received
from bench.one_run import RunFailed
from remoting.message.properties import encode_properties
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command

_PARENT: Final = "LiteParent"
_GROUP: Final = "lite_bench"
_CLIENT: Final = "lite_bench@1"
_QUEUES: Final = 8
_BODY: Final = bytes(64)
_SENT_AT_ONCE: Final = 2000

# One lite topic in a thousand is active.
_ACTIVE_EACH: Final = 1000
_A_SECOND: Final = 500
_GRACE_S: Final = 10.0
_PLANNED: Final = struct.Struct(">q")  # ns; a body begins with it

_MIB: Final = 1024 * 1024


def _lite(bench: Bench) -> list[Figure]:
    count, wanted = bench.scale.lite_topics, min(bench.scale.lite_topics, 10_000)
    address, name = bench.group.leader_address(), f"{count:,} lite topics"
    # Active ones are spread among all, and the client reads each of them.
    active = list(range(0, count, _ACTIVE_EACH))
    read = sorted({*active, *range(0, count, max(1, count // wanted))})[:wanted]
    with Asking(address) as asking:
        _make(asking)
        before_mib, filled = bench.group.leader_memory_mib(), meter_of(bench.group)
        for at in range(0, count, _SENT_AT_ONCE):
            numbers = range(at, min(count, at + _SENT_AT_ONCE))
            _check(asking.ask_all([_send(number, _BODY) for number in numbers]))
        grown = (bench.group.leader_memory_mib() - before_mib) * _MIB / count
        figures = [
            Figure(f"{name}, memory of the leader for each", "bytes", grown),
            *filled.rated(f"{name}, a first message in each", count),
        ]
        began = time.monotonic()
        _check([asking.ask(_subscription(read))])
        took_ms = (time.monotonic() - began) * 1000
        figures.append(Figure(f"a subscription to {len(read):,} of them", "ms", took_ms))
    drained = meter_of(bench.group)
    _drain(address, len(read))
    figures += drained.rated("messages that wait, by pops of 32", len(read))
    travelled, seconds = meter_of(bench.group), bench.measured_s
    times_ms = _travel(address, active, seconds)
    at_rate = f"{_A_SECOND} messages a second to {len(active):,} of them"
    cuts = quantiles(times_ms, n=100)
    figures += [
        Figure(f"{at_rate}, end to end: median", "ms", cuts[49]),
        Figure(f"{at_rate}, end to end: 99th percentile", "ms", cuts[98]),
        *travelled.each(at_rate, _A_SECOND * seconds),
    ]
    size = max([path.stat().st_size for path in _snapshots(bench.folder)], default=0)
    if size:
        figures.append(Figure(f"{name}, the largest snapshot", "MiB", size / _MIB))
    leader = bench.group.leader()
    outage = outage_ms(bench.group.nameserver, lambda: bench.group.kill(leader), patience_s=60.0)
    bench.group.start(leader)
    return [*figures, Figure(f"{name}, leader killed, our client", "ms", outage)]


def _snapshots(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("snapshot*/**/*") if path.is_file())


def _make(asking: Asking) -> None:
    queues = {"readQueueNums": str(_QUEUES), "writeQueueNums": str(_QUEUES), "perm": "6"}
    topic = {"topic": _PARENT, "attributes": "+message.type=LITE", **queues}
    attributes = {"+lite.bind.topic": _PARENT, "+lite.sub.client.quota": "-1"}
    group = json.dumps({"groupName": _GROUP, "attributes": attributes}).encode()
    _check(
        [
            asking.ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)),
            asking.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)),
        ]
    )


def _check(replies: Iterable[Command]) -> None:
    for reply in replies:
        if reply.code != ResponseCode.SUCCESS:
            raise RunFailed(f"a request was answered with {reply.code}: {reply.remark}")


def _name(number: int) -> str:
    return f"{number:032}"


def _send(number: int, body: bytes) -> Command:
    pairs = {"__LITE_TOPIC": _name(number), "UNIQ_KEY": f"{number:032X}"}
    fields = {
        **{"a": "bench", "b": _PARENT, "c": "TBW102", "d": "4", "e": str(number % _QUEUES)},
        **{"f": "0", "g": str(time.time_ns() // 1_000_000), "h": "0", "j": "0", "k": "false"},
        **{"i": encode_properties(pairs).decode(), "m": "false", "n": "bench"},
    }
    return Command(RequestCode.SEND_MESSAGE_V2, fields, body)


def _subscription(numbers: Sequence[int]) -> Command:
    change = {
        **{"action": "COMPLETE_ADD", "clientId": _CLIENT, "group": _GROUP, "topic": _PARENT},
        **{"liteTopicSet": list(map(_name, numbers)), "version": 1},
    }
    body = json.dumps({"subscriptionSet": [change]}).encode()
    return Command(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body)


class _Consumer:
    """Keeps one pop under way until it has `wanted` messages, and acknowledges each.

    A broker may answer a pop whose connection has just ended; other pops do not get those messages
    before their invisible time is over.

    Attributes:
        times_ms: from the planned moment of each message to its arrival.
        messages: that were given.
        settled: those of them whose acknowledgement was answered.
    """

    def __init__(self, connection: socket.socket, wanted: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._decoder = FrameDecoder()
        self.times_ms: list[float] = []
        self.messages = self.settled = 0
        self._pop()

    def _pop(self) -> None:
        fields = {
            **{"clientId": _CLIENT, "consumerGroup": _GROUP, "topic": _PARENT, "maxMsgNum": "32"},
            **{"invisibleTime": "60000", "pollTime": "15000"},
            "bornTime": str(time.time_ns() // 1_000_000),
        }
        pop = Command(RequestCode.POP_LITE_MESSAGE, fields, opaque=1)
        self._connection.sendall(encode_command(pop))

    def receive(self) -> None:
        """Raises RunFailed."""
        for reply in self._decoder.feed(received(self._connection)):
            if reply.opaque != 1:
                _check([reply])
                self.settled += 1
                continue
            if reply.code != ResponseCode.POLLING_TIMEOUT:
                _check([reply])
                self._take(reply)
            if self.messages < self._wanted:
                self._pop()

    def _take(self, reply: Command) -> None:
        now_ns = time.monotonic_ns()
        handle = " ".join([reply.text(one) for one in ("popTime", "invisibleTime", "reviveQid")])
        acks: list[bytes] = []
        for record in decode_records(reply.body):
            self.messages += 1
            self.times_ms.append((now_ns - _PLANNED.unpack_from(record.body)[0]) / 1e6)
            fields = {
                **{"consumerGroup": _GROUP, "topic": _PARENT, "queueId": "0"},
                **{"offset": str(record.queue_offset), "brokerName": "bench"},
                "liteTopic": record.property_map()["__LITE_TOPIC"],
                "extraInfo": f"0 {handle} 0 bench 0 {record.queue_offset}",
            }
            acks.append(encode_command(Command(RequestCode.ACK_MESSAGE, fields, opaque=2)))
        self._connection.sendall(b"".join(acks))


def _drain(address: str, messages: int) -> None:
    """Receive and acknowledge what waits. Raises RunFailed."""
    with connected(address) as connection:
        consumer = _Consumer(connection, messages)
        while consumer.settled < messages:  # the end of the connection may overtake the rest
            consumer.receive()


def _travel(address: str, active: Sequence[int], for_s: float) -> list[float]:
    """Send to each active lite topic in turn, and consume; return the times. Raises RunFailed."""
    planned = int(for_s * _A_SECOND)
    with connected(address) as sending, connected(address) as popping:
        consumer, answers, sent = _Consumer(popping, planned), FrameDecoder(), 0
        began_ns = time.monotonic_ns()
        give_up_at = time.monotonic() + for_s + _GRACE_S
        while consumer.messages < planned:
            if time.monotonic() > give_up_at:
                raise RunFailed(f"{planned - consumer.messages} of {planned} have not come")
            due = min(planned, (time.monotonic_ns() - began_ns) * _A_SECOND // 1_000_000_000 + 1)
            for number in range(sent, due):
                body = _PLANNED.pack(began_ns + number * 1_000_000_000 // _A_SECOND) + _BODY
                sending.sendall(encode_command(_send(active[number % len(active)], body)))
            sent = due
            for ready in select.select([sending, popping], [], [], 1 / _A_SECOND)[0]:
                if ready is popping:
                    consumer.receive()
                else:
                    _check(answers.feed(received(sending)))
    return consumer.times_ms


LITE_ROWS: Final = (Row("lite", "lite topics", _lite, only_ours=True, needs_load=False),)
