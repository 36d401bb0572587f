"""Decodes bytes with whole, adjacent entries to Arrow columns. Pure.

No Python object is made for an entry: the bytes become an Arrow array of binaries in place, Arrow
copies headers and bodies as slices in C, and numpy decodes the fields. The layout is that of
dledger/entry.py.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dledger.declared_error import DeclaredError
from dledger_spark.schema import ENTRIES, ENTRY_HEADERS, SCHEMAS

HEADER_BYTES: Final = 48
MAX_ENTRY_BYTES: Final = HEADER_BYTES + 4 * 1024 * 1024 + 64 * 1024
BLANK_BYTES: Final = 8
# binary_slice of pyarrow 26 fails without an end; no binary is longer than this.
TO_THE_END: Final = 2**31 - 1

HEADER: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("size", ">i4"),
        ("index", ">i8"),
        ("term", ">i8"),
        ("pos", ">i8"),
        ("channel", ">i4"),
        ("chain_crc", ">u4"),
        ("body_crc", ">u4"),
        ("body_size", ">i4"),
    ]
)

Positions = npt.NDArray[np.int64]
_NUMBER: Final = np.dtype(">i4")


class EntryMismatch(DeclaredError):
    """An entry is not the expected one. `row` counts from the batch's first entry."""

    row: int
    problem: str
    sealed: bool = False

    _template = "{problem}"


def binaries(content: bytes, starts: Positions) -> Any:
    """Return the slices starts[i]..starts[i + 1] of `content` as an Arrow array, without a copy."""
    offsets = pa.py_buffer(starts.astype(np.int32))
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(starts) - 1, [None, offsets, pa.py_buffer(content)]
    )


def fixed_part(values: Any, start: int, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `layout` at `start` of every binary, as a structured array. Each must be long
    enough.
    """
    part = pc.binary_slice(values, start, start + layout.itemsize)
    begin, _end = bounds(part)
    data = part.buffers()[2]
    if data is None or not len(begin):
        return np.empty(0, layout)
    return np.frombuffer(data, layout, count=len(begin), offset=int(begin[0]))


def at_places(data: Any, places: Positions, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `layout` at places of a buffer, which must be long enough there."""
    plain = np.dtype((np.void, layout.itemsize))  # numpy copies structures field by field
    starts = max(0, len(data) - plain.itemsize + 1)
    return np.ndarray((starts,), plain, data, strides=(1,))[places].view(layout)


def number_at(data: Any, places: Positions) -> Positions:
    """Return the signed 32-bit numbers at places of a buffer."""
    return at_places(data, places, _NUMBER).astype(np.int64)


def bounds(values: Any) -> tuple[Positions, Positions]:
    """Return where each binary begins and ends in the array's data buffer."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(
        values.buffers()[1], np.int32, count=len(values) + 1, offset=values.offset * 4
    ).astype(np.int64)
    return offsets[:-1], offsets[1:]


def entry_batch(
    content: bytes,
    starts: Positions,
    places: Positions,
    indexes: Positions,
    previous_term: int,
    group: str | None,
    *,
    bodies: bool = True,
) -> pa.RecordBatch:
    """Decode the entries of `content` to a batch of the table of entries, and check their headers.

    Args:
        content: the bytes of the entries.
        starts: where each entry begins in `content`, and at last where the last one ends.
        places: where each entry begins in the log.
        indexes: the index of each, rising.
        previous_term: term of the entry before; terms never decrease (Raft, section 5.3).
        group: the group of the log; None if it is unknown.
        bodies: whether the batch has the column "body".

    Raises:
        EntryMismatch: a header is not that of the expected entry.
    """
    rows = len(starts) - 1
    raw = binaries(content, starts)
    headers = fixed_part(raw, 0, HEADER)
    index, term, pos, size = (
        headers[name].astype(np.int64) for name in ("index", "term", "pos", "size")
    )
    magic = headers["magic"].astype(np.int32)
    for problem, wrong in (
        ("no header of an entry", (magic < 1) | (magic > 3)),
        ("the header is another entry's", index != indexes),
        ("the entry says it lies elsewhere", pos != places),
        ("the entry's size is not the one of its place", size != np.diff(starts)),
        ("the sizes in the header differ", size != HEADER_BYTES + headers["body_size"]),
        ("the term is smaller than the one before", np.diff(term, prepend=previous_term) < 0),
    ):
        if wrong.any():
            raise EntryMismatch(int(wrong.argmax()), problem)
    columns = [
        pa.repeat(pa.scalar(group, pa.string()), rows),
        pa.array(index),
        pa.array(term),
        pa.array(pos),
        pa.array(size.astype(np.int32)),
        pa.array(magic),
        pa.array(headers["channel"].astype(np.int32)),
        pa.array(headers["chain_crc"].astype(np.int64)),
        pa.array(headers["body_crc"].astype(np.int64)),
    ]
    if bodies:
        columns.append(pc.binary_slice(raw, HEADER_BYTES, TO_THE_END))
    schema = SCHEMAS[ENTRIES if bodies else ENTRY_HEADERS]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
