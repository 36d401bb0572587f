"""Where each record lies in the bodies of entries that hold several. Pure.

A broker stores messages that came together in one entry, one record behind the other
(docs/broker.md, "What the log holds").
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger_spark.entry_columns import Positions, bounds
from remoting.message.record import MESSAGE_MAGIC

SMALLEST_RECORD_BYTES: Final = 91
_MAGIC_AT: Final = 4


class RecordPieces(NamedTuple):
    """The pieces of the bodies of a batch, in the log's order; a body without several records is
    one piece.

    Attributes:
        rows: which body each piece is of.
        begins, ends: where it lies in the data of the bodies.
    """

    rows: Positions
    begins: Positions
    ends: Positions


def record_pieces(bodies: Any) -> RecordPieces | None:
    """The pieces of these bodies, an Arrow array of binaries; None if none has several records."""
    begins, ends = bounds(bodies)
    several = np.flatnonzero(ends - begins >= 2 * SMALLEST_RECORD_BYTES)
    if not len(several):
        return None
    octets = np.frombuffer(bodies.buffers()[2], np.uint8)
    first_ends = begins[several] + _number(octets, begins[several])
    follows = first_ends - begins[several] >= SMALLEST_RECORD_BYTES
    follows &= _is_record(octets, begins[several])
    follows &= first_ends + SMALLEST_RECORD_BYTES <= ends[several]
    several = several[follows]
    several = several[_is_record(octets, begins[several] + _number(octets, begins[several]))]
    if not len(several):
        return None
    rows, at, piece_ends = _cut(octets, several, begins, ends)
    others = np.setdiff1d(np.arange(len(begins)), rows)
    rows = np.concatenate((rows, others))
    at = np.concatenate((at, begins[others]))
    piece_ends = np.concatenate((piece_ends, ends[others]))
    order = np.lexsort((at, rows))
    return RecordPieces(rows[order], at[order], piece_ends[order])


def _cut(
    octets: npt.NDArray[np.uint8], rows: Positions, begins: Positions, ends: Positions
) -> tuple[Positions, Positions, Positions]:
    """Cut bodies that begin with two records; one that does not consist of records stays whole."""
    found: list[tuple[Positions, Positions, Positions]] = []
    spoilt: list[Positions] = []
    cut, at = rows, begins[rows]
    while len(cut):
        room = ends[cut] - at
        # What cannot be read is looked at where the body begins, to stay within the data.
        is_long = room >= SMALLEST_RECORD_BYTES
        place = np.where(is_long, at, begins[cut])
        size = _number(octets, place)
        good = is_long & _is_record(octets, place) & (size >= SMALLEST_RECORD_BYTES)
        good &= size <= room
        spoilt.append(cut[~good])
        cut, at, size = cut[good], at[good], size[good]
        found.append((cut, at, at + size))
        more = at + size < ends[cut]
        cut, at = cut[more], (at + size)[more]
    whole_rows, whole_begins, whole_ends = (
        np.concatenate(column) for column in zip(*found, strict=True)
    )
    kept = ~np.isin(whole_rows, np.concatenate(spoilt))
    return whole_rows[kept], whole_begins[kept], whole_ends[kept]


def _is_record(octets: npt.NDArray[np.uint8], at: Positions) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = _number(octets, at + _MAGIC_AT) & 0xFFFFFFFF == MESSAGE_MAGIC
    return found


def _number(octets: npt.NDArray[np.uint8], at: Positions) -> Positions:
    """The signed 32-bit numbers at these places."""
    parts = [octets[at + place].astype(np.uint32) for place in range(4)]
    joined = parts[0] << 24 | parts[1] << 16 | parts[2] << 8 | parts[3]
    return joined.view(np.int32).astype(np.int64)
