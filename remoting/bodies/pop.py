"""Bodies of requests about popped messages (200151)."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.wire.errors import BodyMalformed
from remoting.wire.loose_json import compact_json

# Limits of one request: a hundred pops, and some room.
MAX_BATCH_BYTES: Final = 256 * 1024
MAX_ACKS: Final = 4096

# A pop has up to 32 messages, with filtered ones between them.
MAX_BITS: Final = 8192

# For how long a consumer may have a message to itself: the limit of RocketMQ's proxy.
MAX_INVISIBLE_MS: Final = 12 * 3600 * 1000

_NAME: Final = "batch of acknowledgements"


@dataclass(frozen=True, slots=True)
class AckedPop:
    """Acknowledged messages of one pop.

    Attributes:
        group: the consumer group.
        topic: the topic.
        queue_id: the queue.
        popped_ms: the time of the pop, from the handles.
        offsets: of the acknowledged messages.
        kind: of the topic: "0" for itself; others are RocketMQ's retry topics.
        first: the first offset of the pop, from the handle; None for the first acknowledged one.
        invisible_ms: the invisible time; RocketMQ's brokers find their check-point by it.
        check_point_queue: the queue of that check-point, from the handle.
    """

    group: str
    topic: str
    queue_id: int
    popped_ms: int
    offsets: Sequence[int]
    kind: str = "0"
    first: int | None = None
    invisible_ms: int = 0
    check_point_queue: int = 0


def encode_batch_ack(broker_name: str, pops: Iterable[AckedPop]) -> bytes:
    acks = []
    for pop in pops:
        first = min(pop.offsets) if pop.first is None else pop.first
        bits = sum({1 << (offset - first) for offset in pop.offsets})
        data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        acks.append(
            {
                "c": pop.group,
                "t": pop.topic,
                "r": pop.kind,
                "so": first,
                "q": pop.queue_id,
                "rq": pop.check_point_queue,
                "pt": pop.popped_ms,
                "it": pop.invisible_ms,
                "b": base64.b64encode(data).decode(),
            }
        )
    return compact_json({"brokerName": broker_name, "acks": acks}).encode()


def decode_batch_ack(body: bytes) -> list[AckedPop]:
    """Decode it. Raises BodyMalformed, also for too many messages."""
    pops: list[AckedPop] = []
    left = MAX_ACKS
    parsed = JsonObject.parse(_NAME, body, MAX_BATCH_BYTES)
    for ack in parsed.objects("acks", at_most=MAX_ACKS):
        offsets = [ack.integer("so") + bit for bit in _bits(ack.text("b", ""))]
        left -= len(offsets)
        if left < 0:
            raise BodyMalformed(_NAME, f"more than {MAX_ACKS} messages")
        pops.append(
            AckedPop(
                ack.name("c"),
                ack.name("t"),
                ack.int32("q"),
                ack.integer("pt"),
                offsets,
                ack.text("r", "0"),
                ack.integer("so"),
                ack.integer("it", 0),
                ack.int32("rq", 0),
            )
        )
    return pops


def _bits(text: str) -> Iterator[int]:
    """Yield the set bits of Java's BitSet in base 64. Raises BodyMalformed."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BodyMalformed(_NAME, "a set of bits is no base 64") from None
    if len(data) * 8 > MAX_BITS:
        raise BodyMalformed(_NAME, f"a set of {len(data) * 8} bits, at most {MAX_BITS} are read")
    number = int.from_bytes(data, "little")
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
