"""Message records as Arrow columns, from the bodies of entries. Pure.

An entry is a message if its body begins like a record of RocketMQ's commit log
(remoting.message.record has the layout): its own length, and one of the two magics. A command of a
broker may follow, or further records, each of which is a message. All other entries (commands,
no-ops, configurations) are skipped, and so are records whose lengths contradict one another, and
other records of the same entry, because brokers refuse them.

Records have one of eight shapes: IPv4 or IPv6 for each of two hosts, and one or two bytes for the
length of the topic. Within a shape every field up to the body has a fixed place, so a batch is
decoded shape by shape; in practice there is only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_spark.entries.entry_columns import Positions, at_places, bounds
from dledger_spark.records.body_pieces import (
    SMALLEST_RECORD_BYTES,
    RecordPieces,
    are_commands,
    record_pieces,
)
from dledger_spark.records.property_columns import PropertyColumns, slices, texts
from dledger_spark.schema import FIRST_MS, LAST_MS, MESSAGE_SCHEMA, TIME
from remoting.message.host import unpacked_host
from remoting.message.properties import KEYS, TAGS, UNIQUE_KEY
from remoting.message.record import (
    BORN_HOST_V6_FLAG,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    STORE_HOST_V6_FLAG,
)

_SHAPES: Final = 8
_OF_ENTRIES: Final = frozenset({"raft_group", "index", "term"})
_PROPERTY_OF: Final = {"unique_key": UNIQUE_KEY, "keys": KEYS, "tags": TAGS}
# The two digits of each octet.
_HEX_DIGITS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)


def message_batch(entries: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return the messages among `entries`, in the log's order, with the columns `names`; by default
    all.
    """
    names = MESSAGE_SCHEMA.names if names is None else names
    schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
    bodies = entries.column("body")
    pieces = record_pieces(bodies)
    begins, ends = bounds(bodies) if pieces is None else (pieces.begins, pieces.ends)
    found = list(_found(bodies.buffers()[2], begins, ends))
    order = np.concatenate([np.empty(0, np.int64), *(records.rows for records in found)])
    if pieces is not None:
        spoilt = _spoilt(pieces, order)
        if len(spoilt):
            kept = np.setdiff1d(np.arange(len(entries)), spoilt)
            return message_batch(entries.take(pa.array(kept)), names)
    batches = []
    for records in found:
        at = records.rows if pieces is None else pieces.rows[records.rows]
        columns = [
            _of_entries(entries, name, at) if name in _OF_ENTRIES else records.column(name)
            for name in names
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    together = pa.Table.from_batches(batches).take(pa.array(np.argsort(order)))
    return together.combine_chunks().to_batches()[0]


def _of_entries(entries: pa.RecordBatch, name: str, rows: Positions) -> Any:
    column = entries.column(name)
    is_all = len(rows) == len(entries) and (np.diff(rows) == 1).all()
    return column if is_all else column.take(pa.array(rows))


def _spoilt(pieces: RecordPieces, whole: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the entries with several records that are not all whole, by their places in the
    batch.
    """
    count = int(pieces.rows[-1]) + 1
    in_all = np.bincount(pieces.rows, minlength=count)
    are_whole = np.bincount(pieces.rows[whole], minlength=count)
    return np.flatnonzero((in_all > 1) & (are_whole < in_all))


def _found(data: Any, begins: Positions, ends: Positions) -> Iterator[_Records]:
    """Yield the whole records among pieces of a buffer, by their shapes."""
    rows = np.flatnonzero(ends - begins >= SMALLEST_RECORD_BYTES)
    if not len(rows):
        return
    begins, ends = begins[rows], ends[rows]
    # Up to the system flag, which decides on the rest, all shapes are equal.
    start = at_places(data, begins, _layout(0))
    is_v2 = start["magic"] == MESSAGE_MAGIC_V2
    is_record = is_v2 | (start["magic"] == MESSAGE_MAGIC)
    sizes = start["size"].astype(np.int64)
    is_shorter = (sizes != ends - begins) & is_record
    if is_shorter.any():
        # A broker's command may follow.
        behind = np.where(sizes >= SMALLEST_RECORD_BYTES, begins + sizes, ends)
        is_record[is_shorter] = are_commands(data, behind[is_shorter], ends[is_shorter])
    flags = start["system_flag"]
    shapes = (flags & BORN_HOST_V6_FLAG != 0) * 1 + (flags & STORE_HOST_V6_FLAG != 0) * 2
    shapes = shapes + is_v2 * 4
    for shape in np.flatnonzero(np.bincount(shapes[is_record], minlength=_SHAPES)).tolist():
        layout = _layout(shape)
        rest = _rest_bytes(shape)
        chosen = np.flatnonzero(is_record & (shapes == shape) & (sizes >= layout.itemsize + rest))
        at = begins[chosen]
        records = _Records(data, rows[chosen], at, at_places(data, at, layout), shape)
        if len(records.rows):
            yield records


def _rest_bytes(shape: int) -> int:
    """Return the bytes of the fields behind the body of a record without a topic and properties."""
    return (2 if shape & 4 else 1) + 2


@cache
def _layout(shape: int) -> np.dtype[Any]:
    """Return the fixed part of a record of this shape, up to the body."""
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


class _Records:
    """The whole records among those of one shape: their lengths fit together.

    `rows` are their numbers, which are kept for whole records. The sizes in their fixed parts must
    not exceed the buffer.
    """

    def __init__(
        self, data: Any, rows: Positions, begins: Positions, fixed: npt.NDArray[Any], shape: int
    ) -> None:
        octets = np.frombuffer(data, np.uint8)
        ends = begins + fixed["size"].astype(np.int64)
        body_begins = begins + fixed.dtype.itemsize
        body_ends = body_begins + fixed["body_size"].astype(np.int64)
        rest = _rest_bytes(shape)
        # For records that do not fit, the record's first bytes are read, to stay within the buffer.
        whole = (body_ends >= body_begins) & (body_ends + rest <= ends)
        lengths_at = np.where(whole, body_ends, begins)
        topic_begins = lengths_at + rest - 2
        topic_ends = topic_begins + _topic_lengths(octets, lengths_at, shape)
        whole &= (topic_ends >= topic_begins) & (topic_ends + 2 <= ends)
        whole &= topic_ends + 2 + _short(octets, np.where(whole, topic_ends, begins)) == ends
        places: tuple[npt.NDArray[Any], ...]
        places = rows, body_begins, body_ends, topic_begins, topic_ends, ends, fixed
        if not whole.all():
            places = tuple(place[whole] for place in places)
        self.rows: Positions
        self.rows, body_begins, body_ends, topic_begins, topic_ends, ends, self._fixed = places
        self._data = data
        self._bodies = body_begins, body_ends
        self._topics = topic_begins, topic_ends
        self._runs = topic_ends + 2, ends

    @cached_property
    def _properties(self) -> PropertyColumns:
        return PropertyColumns(slices(self._data, *self._runs))

    def column(self, name: str) -> Any:
        """Return one column of the table of messages, except `_OF_ENTRIES`."""
        match name:
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


def _short(octets: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the signed 16-bit numbers at places."""
    unsigned = octets[at].astype(np.uint16) << 8 | octets[at + 1]
    return unsigned.view(np.int16).astype(np.int64)


def _times(times_ms: npt.NDArray[np.int64]) -> Any:
    """Convert milliseconds since 1970 to instants; null outside of the years 1 to 9999."""
    values = times_ms.astype(np.int64)
    shown = (values >= FIRST_MS) & (values <= LAST_MS)
    return pa.array(np.where(shown, values, 0) * 1000, pa.int64(), mask=~shown).cast(TIME)


def _same_width(field: npt.NDArray[np.uint8], kind: Any) -> Any:
    """Convert rows of equally many bytes to binaries or ASCII strings."""
    rows, width = field.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(field))]
    return pa.Array.from_buffers(kind, rows, buffers)


def _each_once(values: Any, turn: Any) -> Any:
    """Apply `turn` to the distinct values, and put the results in their places."""
    coded = values.dictionary_encode()
    return turn(coded.dictionary).take(coded.indices)


def _hosts(field: npt.NDArray[np.uint8]) -> Any:
    """Convert packed addresses to strings; few of them are distinct."""
    return _each_once(
        _same_width(field, pa.binary()),
        lambda hosts: pa.array([unpacked_host(host) for host in hosts.to_pylist()], pa.string()),
    )


def _message_ids(fixed: npt.NDArray[Any]) -> Any:
    """Return offset ids: upper-case hex of store host, store port and physical offset."""
    rows = len(fixed)
    parts = [fixed["store_host"]]
    for name in ("store_port", "physical_offset"):
        field = np.ascontiguousarray(fixed[name])
        parts.append(field.view(np.uint8).reshape(rows, field.itemsize))
    digits = _HEX_DIGITS[np.concatenate(parts, axis=1)]
    return _same_width(digits.view(np.uint8).reshape(rows, -1), pa.string())
