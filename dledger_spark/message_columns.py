"""Message records as Arrow columns, from the bodies of entries. Pure.

An entry is a message when its body begins like a record of RocketMQ's commit log
(remoting.message.record has the layout): its own length, and one of the two magics. A command of a
broker may follow; or further records, each of which is a message. All other entries (commands,
no-ops, configurations) are skipped, and so are records whose lengths contradict one another, and
those that share an entry with one, because brokers refuse them.

Records have one of eight shapes: IPv4 or IPv6 for each of two hosts, and one or two bytes for the
length of the topic. Within a shape every field up to the body has a fixed place, so a batch is
decoded shape by shape; in practice there is only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_spark.entry_columns import bounds, fixed_part
from dledger_spark.property_columns import PropertyColumns, slices, texts
from dledger_spark.record_pieces import SMALLEST_RECORD_BYTES, RecordPieces, record_pieces
from dledger_spark.schema import MESSAGE_SCHEMA, TIME
from remoting.message.host import unpacked_host
from remoting.message.properties import KEYS, TAGS, UNIQUE_KEY
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    STORE_HOST_V6_FLAG,
)

_COMMAND_MARK: Final = b"DLB"
_START: Final = np.dtype([("size", ">i4"), ("magic", ">u4")])
_SYSTEM_FLAG_AT: Final = 36
_BODY_SIZE_BYTES: Final = 4  # the last field before the body
_SYSTEM_FLAG: Final = np.dtype([("system_flag", ">i4")])
_PROPERTY_OF: Final = {"unique_key": UNIQUE_KEY, "keys": KEYS, "tags": TAGS}
_HEX_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
# The range of a TimestampType: the years 1 to 9999, in milliseconds since 1970.
_FIRST_MILLISECOND: Final = -62_135_596_800_000
_LAST_MILLISECOND: Final = 253_402_300_799_999


def message_batch(entries: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """The messages among `entries`, in the log's order.

    Args:
        entries: a batch of the table of entries.
        names: the wanted columns; no others are made. By default all.
    """
    names = MESSAGE_SCHEMA.names if names is None else names
    schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
    pieces = record_pieces(entries.column("body"))
    whole_entries = entries
    if pieces is not None:
        entries = _apart(entries, pieces)
    shapes = _shapes(entries.column("body"))
    batches, order = [], [np.empty(0, np.int64)]
    for shape in np.unique(shapes[shapes >= 0]).tolist():
        rows = np.flatnonzero(shapes == shape)
        chosen = entries if len(rows) == len(entries) else entries.take(pa.array(rows))
        whole = _are_whole(chosen.column("body"), shape)
        if not whole.all():
            rows = rows[whole]
            chosen = chosen.filter(pa.array(whole))
            if not len(rows):
                continue
        records = _Records(chosen, shape)
        columns = [records.column(name) for name in names]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        order.append(rows)
    if pieces is not None:
        spoilt = _spoilt(pieces, np.concatenate(order))
        if len(spoilt):
            kept = np.setdiff1d(np.arange(len(whole_entries)), spoilt)
            return message_batch(whole_entries.take(pa.array(kept)), names)
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    together = pa.Table.from_batches(batches).take(pa.array(np.argsort(np.concatenate(order))))
    return together.combine_chunks().to_batches()[0]


def _apart(entries: pa.RecordBatch, pieces: RecordPieces) -> pa.RecordBatch:
    """The entries with a row for each of their records."""
    bodies = slices(entries.column("body").buffers()[2], pieces.begins, pieces.ends)
    columns = [
        bodies if name == "body" else entries.column(name).take(pa.array(pieces.rows))
        for name in entries.schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=entries.schema)


def _spoilt(pieces: RecordPieces, whole: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The entries of several records that are not all whole, by their places in the batch."""
    count = int(pieces.rows[-1]) + 1
    in_all = np.bincount(pieces.rows, minlength=count)
    are_whole = np.bincount(pieces.rows[whole], minlength=count)
    return np.flatnonzero((in_all > 1) & (are_whole < in_all))


def _shapes(bodies: Any) -> npt.NDArray[np.int64]:
    """For each body, its shape in three bits, or -1 if it is not a record."""
    shapes = np.full(len(bodies), -1, np.int64)
    begins, ends = bounds(bodies)
    long = np.flatnonzero(ends - begins >= SMALLEST_RECORD_BYTES)
    if not len(long):
        return shapes
    bodies = bodies.take(pa.array(long)) if len(long) < len(bodies) else bodies
    start = fixed_part(bodies, 0, _START)
    flags = fixed_part(bodies, _SYSTEM_FLAG_AT, _SYSTEM_FLAG)["system_flag"]
    is_v2 = start["magic"] == MESSAGE_MAGIC_V2
    is_record = is_v2 | (start["magic"] == MESSAGE_MAGIC)
    is_record &= (start["size"] == (ends - begins)[long]) | _have_command(bodies, start["size"])
    shape = (
        ((flags & BORN_HOST_V6_FLAG) != 0) * 1 + ((flags & STORE_HOST_V6_FLAG) != 0) * 2 + is_v2 * 4
    )
    shapes[long] = np.where(is_record, shape, -1)
    return shapes


def _have_command(bodies: Any, sizes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether a broker's command (docs/broker.md) stands behind the first bytes of each body."""
    begins, ends = bounds(bodies)
    found = np.zeros(len(sizes), np.bool_)
    longer = (sizes >= SMALLEST_RECORD_BYTES) & (sizes < ends - begins)
    for row in np.flatnonzero(longer).tolist():
        command = bodies[row].as_py()[sizes[row] :]
        found[row] = int.from_bytes(command[:4]) == len(command) and command[4:7] == _COMMAND_MARK
    return found


def _layout(shape: int) -> np.dtype[Any]:
    """The fixed part of a record of this shape, up to the body."""
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">u4"),
            ("body_crc", ">i4"),
            ("queue", ">i4"),
            ("flag", ">i4"),
            ("offset", ">i8"),
            ("physical_offset", ">i8"),
            ("system_flag", ">i4"),
            ("born_time", ">i8"),
            ("born_host", np.uint8, (16 if shape & 1 else 4,)),
            ("born_port", ">i4"),
            ("store_time", ">i8"),
            ("store_host", np.uint8, (16 if shape & 2 else 4,)),
            ("store_port", ">i4"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_size", ">i4"),
        ]
    )


def _are_whole(bodies: Any, shape: int) -> npt.NDArray[np.bool_]:
    """Whether the lengths in records of one shape fit together."""
    layout = _layout(shape)
    begins, _ends = bounds(bodies)
    ends = begins + fixed_part(bodies, 0, _START)["size"]
    octets = np.frombuffer(bodies.buffers()[2], np.uint8)
    rest = (2 if shape & 4 else 1) + 2
    whole: npt.NDArray[np.bool_] = ends - begins >= layout.itemsize + rest
    # Records that do not fit read the record's first bytes instead, to stay within the buffer.
    at = np.where(whole, begins + layout.itemsize - _BODY_SIZE_BYTES, begins)
    body_ends = begins + layout.itemsize + _number(octets, at)
    whole &= (body_ends >= begins + layout.itemsize) & (body_ends + rest <= ends)
    body_ends = np.where(whole, body_ends, begins)
    topic_ends = body_ends + rest - 2 + _topic_lengths(octets, body_ends, shape)
    whole &= (topic_ends >= body_ends) & (topic_ends + 2 <= ends)
    topic_ends = np.where(whole, topic_ends, begins)
    whole &= topic_ends + 2 + _short(octets, topic_ends) == ends
    return whole


class _Records:
    """Entries that are all whole records of one shape."""

    def __init__(self, entries: pa.RecordBatch, shape: int) -> None:
        self._entries = entries
        bodies = entries.column("body")
        layout = _layout(shape)
        begins, _ends = bounds(bodies)
        self._data = bodies.buffers()[2]
        octets = np.frombuffer(self._data, np.uint8)
        self._fixed = fixed_part(bodies, 0, layout)
        ends = begins + self._fixed["size"]
        body_begins = begins + layout.itemsize
        body_ends = body_begins + self._fixed["body_size"]
        topic_begins = body_ends + (2 if shape & 4 else 1)
        topic_ends = topic_begins + _topic_lengths(octets, body_ends, shape)
        self._bodies = body_begins, body_ends
        self._topics = topic_begins, topic_ends
        self._runs = topic_ends + 2, ends

    @cached_property
    def _properties(self) -> PropertyColumns:
        return PropertyColumns(slices(self._data, *self._runs))

    def column(self, name: str) -> Any:
        """One column of the table of messages."""
        match name:
            case "raft_group" | "index" | "term":
                return self._entries.column(name)
            case "topic":
                return _each_once(slices(self._data, *self._topics), texts)
            case "message_id":
                return _message_ids(self._fixed)
            case "born_time" | "store_time":
                return _times(self._fixed[name])
            case "born_host" | "store_host":
                return _hosts(self._fixed[name])
            case "unique_key" | "keys" | "tags":
                return self._properties.column(_PROPERTY_OF[name])
            case "properties":
                return self._properties.map_column()
            case "body":
                return slices(self._data, *self._bodies)
            case _:
                field = MESSAGE_SCHEMA.field(name)
                return pa.array(self._fixed[name].astype(field.type.to_pandas_dtype()))


def _topic_lengths(
    octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], shape: int
) -> npt.NDArray[np.int64]:
    return _short(octets, at) if shape & 4 else octets[at].astype(np.int64)


def _number(octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The signed 32-bit numbers at these places."""
    return (_short(octets, at) << 16) | (_short(octets, at + 2) & 0xFFFF)


def _short(octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The signed 16-bit numbers at these places."""
    unsigned = octets[at].astype(np.uint16) << 8 | octets[at + 1]
    return unsigned.view(np.int16).astype(np.int64)


def _times(milliseconds: npt.NDArray[np.int64]) -> Any:
    """Milliseconds since 1970 as instants; null outside of the years 1 to 9999."""
    values = milliseconds.astype(np.int64)
    shown = (values >= _FIRST_MILLISECOND) & (values <= _LAST_MILLISECOND)
    return pa.array(np.where(shown, values, 0) * 1000, pa.int64(), mask=~shown).cast(TIME)


def _octets(field: npt.NDArray[np.uint8]) -> Any:
    """Rows of equally many bytes as binaries."""
    rows, width = field.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(field).tobytes())]
    return pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)


def _each_once(values: Any, turn: Any) -> Any:
    """Apply `turn` to the distinct values only, and put the results in their places."""
    coded = values.dictionary_encode()
    return turn(coded.dictionary).take(coded.indices)


def _hosts(field: npt.NDArray[np.uint8]) -> Any:
    """Packed addresses as texts; the distinct ones are few."""
    return _each_once(
        _octets(field),
        lambda hosts: pa.array([unpacked_host(host) for host in hosts.to_pylist()], pa.string()),
    )


def _message_ids(fixed: npt.NDArray[Any]) -> Any:
    """Offset ids: upper-case hex of store host, store port and physical offset."""
    rows = len(fixed)
    parts = [fixed["store_host"]]
    for name in ("store_port", "physical_offset"):
        field = np.ascontiguousarray(fixed[name])
        parts.append(field.view(np.uint8).reshape(rows, field.itemsize))
    packed = np.concatenate(parts, axis=1)
    digits = np.empty((rows, packed.shape[1], 2), np.uint8)
    digits[:, :, 0] = _HEX_DIGITS[packed >> 4]
    digits[:, :, 1] = _HEX_DIGITS[packed & 15]
    return texts(_octets(digits.reshape(rows, -1)))
