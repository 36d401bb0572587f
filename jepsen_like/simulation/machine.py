"""A state machine that shows any difference in order or content: a sum over all applied."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from dledger.entry import Entry, Magic


class SumMachine:
    """Folds every entry into one number."""

    __slots__ = ("sum",)

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, entries: Sequence[Entry]) -> list[int]:
        """Apply entries in log order; the sum after each of them."""
        sums = []
        for entry in entries:
            if entry.magic == Magic.NORMAL:
                self.sum = crc32(entry.body, self.sum)
            sums.append(self.sum)
        return sums
