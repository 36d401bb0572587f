r"""The properties of many messages at once: runs of `name \\x01 value \\x02` to a map column. Pure.

The rules are those of remoting.message.properties: pieces without a name or without a separator are
skipped, and if a name comes twice the last value counts. Arrow and numpy split the whole batch;
Python looks at single values only where bytes are not UTF-8 (U+FFFD replaces them, because a
string column cannot hold them).
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dledger_spark.entries.entry_columns import Positions, bounds

_NAME_VALUE: Final = b"\x01"
_PROPERTY: Final = b"\x02"
# Up to this size, counting pairs in a table of (message, name) is cheaper than sorting them.
_MAX_COUNTED_CELLS: Final = 16 * 1024 * 1024


class PropertyColumns:
    """The properties of a batch, from one run for each message, an Arrow array of binaries."""

    def __init__(self, runs: Any) -> None:
        self._rows = len(runs)
        pieces = pc.split_pattern(runs, _PROPERTY)
        flat = pc.list_flatten(pieces)
        rows = pc.list_parent_indices(pieces).to_numpy()
        separators = pc.find_substring(flat, _NAME_VALUE).to_numpy().astype(np.int64)
        begins, ends = bounds(flat)
        good = separators >= 1  # a name, and a separator behind it
        begins, ends, separators, rows = begins[good], ends[good], separators[good], rows[good]
        data = flat.buffers()[2]
        names = slices(data, begins, begins + separators).dictionary_encode()
        values = slices(data, begins + separators + 1, ends)
        codes = names.indices.to_numpy().astype(np.int64)
        kept = _last_of_each(rows, codes, len(names.dictionary))
        if kept is not None:
            rows, codes, values = rows[kept], codes[kept], values.take(pa.array(kept))
        self._names = texts(names.dictionary)
        self._rows_of, self._codes, self._values = rows, codes, texts(values)

    def map_column(self) -> Any:
        """Return one map for each message, from names to values."""
        offsets = np.searchsorted(self._rows_of, np.arange(self._rows + 1)).astype(np.int32)
        names = self._names.take(pa.array(self._codes))
        return pa.MapArray.from_arrays(pa.array(offsets), names, self._values)

    def column(self, name: str) -> Any:
        """Return the values of one property, null if a message does not have it."""
        code = pc.index(self._names, name).as_py()
        places = np.full(self._rows, -1, np.int64)
        if code >= 0:
            pairs = np.flatnonzero(self._codes == code)
            places[self._rows_of[pairs]] = pairs
        return self._values.take(pa.array(places, mask=places < 0))


def slices(data: Any, begins: Positions, ends: Positions) -> Any:
    """Return the slices begins[i]..ends[i] of a buffer as binaries; they must ascend.

    In an array with the offsets begin, end, begin, end ... every second element is a wanted slice;
    Arrow copies these.
    """
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = begins
    offsets[1::2] = ends
    both = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data]
    )
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def texts(values: Any) -> Any:
    """Convert binaries to strings; bytes that are not UTF-8 become U+FFFD."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()])


def _last_of_each(
    rows: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], names: int
) -> npt.NDArray[np.int64] | None:
    """Return the pairs that stay if only the last one of a name counts; None if all stay."""
    if not len(rows):
        return None
    cells = rows * names + codes
    if int(cells[-1]) + names <= _MAX_COUNTED_CELLS:
        if np.bincount(cells).max() <= 1:
            return None
    elif len(np.unique(cells)) == len(cells):
        return None
    # np.unique returns the first place of each cell: in reverse order, that is the last.
    _cells, backwards = np.unique(cells[::-1], return_index=True)
    return np.sort(len(cells) - 1 - backwards)
