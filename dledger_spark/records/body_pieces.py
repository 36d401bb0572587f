"""Finds the records and commands in the bodies of a broker's entries. Pure.

A broker stores messages that came together in one entry, one record after the other. A command is
an entry of its own, or follows a record (`broker.log.entry`).
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from broker.log.entry import COMMAND_MARK, PREFIX_BYTES
from dledger_spark.entries.entry_columns import Positions, bounds, number_at
from remoting.message.record import MESSAGE_MAGIC

SMALLEST_RECORD_BYTES: Final = 91
_MAGIC_AT: Final = 4
_MARK: Final = int.from_bytes(COMMAND_MARK)
_MARK_AT: Final = 3  # of the four bytes that end with the mark


class RecordPieces(NamedTuple):
    """The pieces of the bodies of a batch, in the log's order: records, or whole bodies.

    Attributes:
        rows: the body of each piece.
        begins, ends: its place in the data of the bodies.
    """

    rows: Positions
    begins: Positions
    ends: Positions


def record_pieces(bodies: Any) -> RecordPieces | None:
    """Return the pieces of an Arrow array of bodies; None if none has several records."""
    begins, ends = bounds(bodies)
    several = np.flatnonzero(ends - begins >= 2 * SMALLEST_RECORD_BYTES)
    if not len(several):
        return None
    data = bodies.buffers()[2]
    sizes = number_at(data, begins[several])
    follows = sizes >= SMALLEST_RECORD_BYTES
    follows &= begins[several] + sizes + SMALLEST_RECORD_BYTES <= ends[several]
    several, sizes = several[follows], sizes[follows]
    if not len(several):
        return None
    follows = are_records(data, begins[several])
    follows &= are_records(data, begins[several] + sizes)
    several = several[follows]
    if not len(several):
        return None
    rows, at, piece_ends = _cut(data, several, begins, ends)
    others = np.setdiff1d(np.arange(len(begins)), rows)
    rows = np.concatenate((rows, others))
    at = np.concatenate((at, begins[others]))
    piece_ends = np.concatenate((piece_ends, ends[others]))
    order = np.lexsort((at, rows))
    return RecordPieces(rows[order], at[order], piece_ends[order])


def _cut(
    data: Any, rows: Positions, begins: Positions, ends: Positions
) -> tuple[Positions, Positions, Positions]:
    """Cut bodies that begin with two records; one that does not consist of records stays whole."""
    found: list[tuple[Positions, Positions, Positions]] = []
    spoilt: list[Positions] = []
    cut, at = rows, begins[rows]
    while len(cut):
        room = ends[cut] - at
        # Pieces that are too short are replaced by the body's beginning, to stay within the data.
        is_long = room >= SMALLEST_RECORD_BYTES
        place = np.where(is_long, at, begins[cut])
        size = number_at(data, place)
        good = is_long & are_records(data, place) & (size >= SMALLEST_RECORD_BYTES)
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


def are_records(data: Any, at: Positions) -> npt.NDArray[np.bool_]:
    """Return whether each place has the mark of a record."""
    found: npt.NDArray[np.bool_] = number_at(data, at + _MAGIC_AT) & 0xFFFFFFFF == MESSAGE_MAGIC
    return found


def are_commands(data: Any, begins: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    """Return whether a broker's command makes up each of the slices begins[i]..ends[i] of a buffer.

    The buffer has at least `PREFIX_BYTES`. A slice that ends before it begins holds no command.
    """
    sizes = ends - begins
    found: npt.NDArray[np.bool_] = sizes >= PREFIX_BYTES
    at = np.where(found, begins, 0)
    found &= number_at(data, at) == sizes
    found &= number_at(data, at + _MARK_AT) & 0xFFFFFF == _MARK
    return found
