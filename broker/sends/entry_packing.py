"""Packs records into entries of the log.

An entry costs each member about as much as a small message, whatever it holds: its place, its sums,
its acknowledgement and its result. So messages that arrive together share one.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Final, TypeAlias

from broker.errors import NeverStored
from dledger import Body, PositionedBody, PositionedParts

# In an entry of this size the cost of the entry itself is negligible. A larger one would take long
# to read, check and send as a whole.
PACKED_BYTES: Final = 128 * 1024

# The place of a record: the number of its entry, and a byte of the entry's body.
Spot: TypeAlias = tuple[int, int]


class EntryPacking:
    """Puts records into the bodies of entries, in their order.

    Attributes:
        bodies: the full entries.
        has_runs: whether an entry has several records.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self.bodies: list[Body] = []
        self.has_runs = False
        self._max_body_bytes = max_body_bytes
        self._packed_bytes = min(PACKED_BYTES, max_body_bytes)
        self._last: list[PositionedBody] = []  # the records of the entry that is being filled
        self._last_bytes = 0

    def add(self, records: Sequence[PositionedBody]) -> list[Spot]:
        """Add the records of one send: to one entry, unless they do not fit.

        Raises NeverStored (13): a record is larger than any entry; none was added.
        """
        if len(records) == 1:
            sizes = [records[0].placed_bytes]
        else:
            sizes = PositionedParts(tuple(records)).lengths()
        self._check(max(sizes))
        together = sum(sizes)
        if self._last_bytes + together > self._packed_bytes:
            self.close()
        entry, begin = len(self.bodies), self._last_bytes
        if begin + together <= self._max_body_bytes:
            self._last += records
            self._last_bytes += together
            if len(sizes) == 1:
                return [(entry, begin)]
            return list(zip(repeat(entry), accumulate(sizes[:-1], initial=begin), strict=False))
        spots: list[Spot] = []
        for record, size in zip(records, sizes, strict=True):
            if self._last_bytes + size > self._max_body_bytes:
                self.close()
            spots.append((len(self.bodies), self._last_bytes))
            self._last.append(record)
            self._last_bytes += size
        return spots

    def add_alone(self, records: Sequence[PositionedBody]) -> list[Spot]:
        """Add the records of one send, each followed by its command: an entry each. Raises as
        `add`.
        """
        self._check(max([record.placed_bytes for record in records]))
        self.close()
        first = len(self.bodies)
        self.bodies += records
        return [(entry, 0) for entry in range(first, len(self.bodies))]

    def close(self) -> None:
        """Move the last entry, if any, to `bodies`. The next record begins another entry."""
        if not self._last:
            return
        if len(self._last) > 1:
            self.bodies.append(PositionedParts(tuple(self._last)))
            self.has_runs = True
        else:
            self.bodies += self._last
        self._last, self._last_bytes = [], 0

    def _check(self, size: int) -> None:
        if size > self._max_body_bytes:
            raise NeverStored.illegal(
                f"{size} bytes with what the broker adds: at most {self._max_body_bytes}"
            )
