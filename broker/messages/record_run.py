"""Reads the records that share an entry: messages of one or of several queues."""

import struct
from dataclasses import dataclass, field
from typing import Final

from broker.log.entry import is_record
from broker.log.folded import Arrivals
from broker.messages.record_facts import (
    BODY_AT,
    FIXED_FACTS,
    PROPERTIES_LENGTH,
    TAGS_NAME,
    V6_FLAGS,
    code_of,
)
from remoting.message.properties import first_pair
from remoting.message.record import MESSAGE_MAGIC

# Outside the 32 bits of a record's queue id.
_NO_QUEUE: Final = -1 << 32


@dataclass(slots=True)
class RecordRun:
    """The records of one entry, by queue.

    Attributes:
        arrivals: by topic and queue id; in the order of their offsets.
        times: (number of records before it, store timestamp in milliseconds since 1970) of each
            record that is newer than all before it.
    """

    arrivals: dict[tuple[str, int], Arrivals] = field(default_factory=dict)
    times: list[tuple[int, int]] = field(default_factory=list)


def holds_several(body: bytes, first_bytes: int) -> bool:
    return first_bytes != len(body) and is_record(body[first_bytes : first_bytes + 8])


def read_run(body: bytes, position: int) -> RecordRun | str:
    """Read the records of a body in one pass: each costs a member a microsecond.

    Args:
        body: of the entry.
        position: where the body lies in the log.

    Returns:
        The records; or the reason why no broker can have written the body: it holds something else,
        or a record has a wrong position, or is not the next of its queue.
    """
    run = RecordRun()
    arrivals = run.arrivals
    unpack, properties_length_at = FIXED_FACTS.unpack_from, PROPERTIES_LENGTH.unpack_from
    find, stands = body.find, body.startswith
    at, count, newest = 0, 0, -1
    topic_run, queue, next_offset, began = b"", _NO_QUEUE, 0, 0  # of the previous record
    arrived = Arrivals(0)
    places, sizes, codes = arrived.places, arrived.sizes, arrived.codes
    length = len(body)
    try:
        while at < length:
            size, magic, queue_id, offset, place, flag, stored_ms, body_length = unpack(body, at)
            topic_at = at + BODY_AT + body_length
            if queue_id != queue or not stands(topic_run, topic_at):
                topic_run, queue = body[topic_at : topic_at + 1 + body[topic_at]], queue_id
                arrived.bodies.append((body, position, count - began))
                began = count
                key = (topic_run[1:].decode(), queue_id)
                if queue_id < 0:
                    return "records that cannot be read"
                found = arrivals.get(key)
                if found is None:
                    found = arrivals[key] = Arrivals(offset)
                arrived = found
                places, sizes, codes = arrived.places, arrived.sizes, arrived.codes
                next_offset = found.first_offset + len(places)
            properties_at = topic_at + len(topic_run) + 2
            (properties_length,) = properties_length_at(body, properties_at - 2)
            end = at + size
            if (
                magic != MESSAGE_MAGIC
                or body_length < 0
                or flag & V6_FLAGS
                or end > length
                or properties_at + properties_length != end
            ):
                return "records that cannot be read"
            if offset != next_offset or place != position + at:
                return f"record {offset} of {key[0]}/{queue_id} at {place} is out of its place"
            next_offset += 1
            tags_at = find(TAGS_NAME, properties_at, end)
            if tags_at > properties_at and body[tags_at - 1] != 2:
                tags_at = first_pair(body, TAGS_NAME, properties_at, end)
            places.append(place)
            sizes.append(size)
            codes.append(0 if tags_at < 0 else code_of(body, tags_at, end))
            if stored_ms > newest:
                run.times.append((count, stored_ms))
                newest = stored_ms
            count += 1
            at = end
    except (struct.error, IndexError, UnicodeDecodeError):
        return "records that cannot be read"
    arrived.bodies.append((body, position, count - began))
    return run
