"""The commands of brokers in a batch of entries. Pure.

docs/broker.md, "What the log holds", has their layout: eight bytes (length, mark, version), then a
msgpack array that begins with the kind. A command is an entry of its own, or stands behind a
record.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

from dledger_spark.acceptance import MAX_COMMAND_VERSION
from dledger_spark.entry_columns import HEADER_BYTES, Positions, bounds
from dledger_spark.record_pieces import SMALLEST_RECORD_BYTES
from remoting.message.record import MESSAGE_MAGIC

_PREFIX_BYTES: Final = 8
_MARK: Final = int.from_bytes(b"DLB")


class BrokerCommand(NamedTuple):
    """A command that can be read; whether its members make sense is not known yet.

    Attributes:
        index: of its entry.
        term: of its entry.
        position: where the body of its entry begins in the log; of a command behind a record, what
            brokers know the record by.
        version: of its format.
        kind: what it does.
        members: what it says, as msgpack has it.
        is_attached: whether it stands behind a record.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    position: int
    version: int
    kind: int
    members: list[Any]
    is_attached: bool


def broker_commands(entries: pa.RecordBatch) -> list[BrokerCommand]:
    """The commands in a batch of the table of entries, in the log's order."""
    bodies = entries.column("body")
    begins, ends = bounds(bodies)
    rows = np.flatnonzero(ends - begins >= _PREFIX_BYTES)
    if not len(rows):
        return []
    octets = np.frombuffer(bodies.buffers()[2], np.uint8)
    at = begins.copy()
    is_record = _number(octets, begins[rows] + 4, 4) == MESSAGE_MAGIC
    records = rows[is_record & ((ends - begins)[rows] >= SMALLEST_RECORD_BYTES)]
    sizes = _number(octets, begins[records], 4)
    # A record of more than 2 GiB would be a negative number, and no entry is as long.
    longer = sizes + _PREFIX_BYTES <= (ends - begins)[records]
    records, sizes = (
        records[longer & (sizes >= SMALLEST_RECORD_BYTES)],
        sizes[longer & (sizes >= SMALLEST_RECORD_BYTES)],
    )
    at[records] += sizes
    marked = _number(octets, at[rows] + 4, 3) == _MARK
    whole = _number(octets, at[rows], 4) == (ends - at)[rows]
    found = rows[marked & whole]
    indexes, terms, places = (
        entries.column(name).to_numpy()[found].tolist() for name in ("index", "term", "pos")
    )
    data = memoryview(bodies.buffers()[2])
    commands = []
    for row, index, term, place in zip(found.tolist(), indexes, terms, places, strict=True):
        content = data[at[row] : ends[row]]
        read = _read(content[_PREFIX_BYTES:]) if content[7] <= MAX_COMMAND_VERSION else None
        if read is not None:
            is_attached = bool(at[row] != begins[row])
            kind, *members = read
            commands.append(
                BrokerCommand(
                    *(index, term, place + HEADER_BYTES, content[7], kind, members, is_attached)
                )
            )
    return commands


def _read(content: memoryview) -> list[Any] | None:
    try:
        members: Any = msgpack.unpackb(content, raw=False)
    except (ValueError, msgpack.exceptions.UnpackException):
        return None
    if not isinstance(members, list) or not members or type(members[0]) is not int:
        return None
    return members


def _number(octets: Any, at: Positions, size: int) -> Positions:
    """The unsigned numbers of `size` bytes at these places."""
    found: Positions = octets[at].astype(np.int64)
    for place in range(1, size):
        found = found << 8 | octets[at + place]
    return found
