"""When a node writes snapshots, and how much of the log it keeps beside them."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.errors import ConfigInvalid
from dledger.number_check import check_numbers

# Two: if the newest is damaged on the disk, the one before it and the log after that suffice.
DEFAULT_KEPT = 2
# More snapshots only fill the disk: they are never read.
MAX_KEPT = 100
# A member that lags by fewer entries is sent entries, not a snapshot: some seconds of full load.
DEFAULT_TRAILING_ENTRIES = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotPolicy:
    """Off by default. Raises ConfigInvalid for numbers that make no sense.

    Attributes:
        every_entries: write a snapshot when this many entries were applied since the last one; 0
            switches it off.
        every_bytes: the same in bytes of the log; 0 switches it off.
        kept: how many snapshots are kept. The log is kept from the oldest of them on; until there
            are this many, nothing of the log is dropped.
        trailing_entries: how many of the applied entries are kept at least, for members that are
            behind. Only whole segments are ever dropped.
    """

    every_entries: int = 0
    every_bytes: int = 0
    kept: int = DEFAULT_KEPT
    trailing_entries: int = DEFAULT_TRAILING_ENTRIES

    def __post_init__(self) -> None:
        check_numbers(self, "snapshots.")
        for name in ("every_entries", "every_bytes", "trailing_entries"):
            if getattr(self, name) < 0:
                raise ConfigInvalid(f"snapshots.{name}", "must not be negative")
        if not 1 <= self.kept <= MAX_KEPT:
            raise ConfigInvalid("snapshots.kept", f"{self.kept} is not within 1..{MAX_KEPT}")

    @property
    def is_on(self) -> bool:
        """Whether snapshots are written without a request."""
        return self.every_entries > 0 or self.every_bytes > 0
