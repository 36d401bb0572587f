"""Settings of a store, and the limits behind them."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.entry import BLANK_BYTES, HEADER_BYTES, LARGEST_BODY_BYTES, MAX_BODY_BYTES
from dledger.errors import ConfigInvalid
from dledger.number_check import check_numbers
from dledger.store.index_unit import UNIT_BYTES

MIB = 1024 * 1024

# 64 MiB: small enough that retention and recovery work in small steps, large enough that a roll
# (one folder sync) is rare. Java's default is 1 GiB; any size of one log must stay the same.
DEFAULT_SEGMENT_BYTES = 64 * MIB
# Units for 320 Ki entries: the index of 64 MiB of 200-byte entries.
DEFAULT_INDEX_SEGMENT_BYTES = 10 * MIB
# A start checks about this much again: 28,000 entries of 256 bytes, a tenth of a second. Each time
# the log has grown by this much, one more file is synced, a few times a second at most.
DEFAULT_CHECKPOINT_BYTES = 8 * MIB
# 16 MiB: four of the largest entries, so that the pushes of a leader, the records of several terms
# and a small snapshot fit. It is little beside the segments.
DEFAULT_RESERVE_BYTES = 16 * MIB
# The format's `size` and `pos - start` are signed 32 bits in Java.
MAX_SEGMENT_BYTES = 2**31 - 1
MIN_SEGMENT_BYTES = HEADER_BYTES + BLANK_BYTES


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Sizes of the files of a log. Raises ConfigInvalid for sizes that contradict each other.

    Attributes:
        segment_bytes: length of every data file.
        index_segment_bytes: length of every index file, a multiple of 32.
        max_body_bytes: the largest body that `append` takes; a segment must hold such an entry
            and the 8 bytes of a blank record after it. The default is what Java DLedger can hold.
            More, up to `LARGEST_BODY_BYTES`, may be appended once all members run a version that
            reads it.
        spare_segments: how many data files `prepare_spare` writes ahead (0 switches it off).
        checkpoint_bytes: a start checks only about this many bytes at the end of the part that is
            committed and durable, and all after it. May change with every start.
        reserve_bytes: how much of the disk a member reserves, to go on when the disk is full; a
            sixteenth of the disk at most (0: no reserve). Reserve at least the size of a snapshot.
            May change with every start.
    """

    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    index_segment_bytes: int = DEFAULT_INDEX_SEGMENT_BYTES
    max_body_bytes: int = MAX_BODY_BYTES
    spare_segments: int = 1
    checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES
    reserve_bytes: int = DEFAULT_RESERVE_BYTES

    def __post_init__(self) -> None:
        check_numbers(self)
        if not 0 <= self.max_body_bytes <= LARGEST_BODY_BYTES:
            raise ConfigInvalid(
                "max_body_bytes", f"{self.max_body_bytes} is not within 0..{LARGEST_BODY_BYTES}"
            )
        if not self.max_body_bytes + MIN_SEGMENT_BYTES <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ConfigInvalid(
                "segment_bytes",
                f"{self.segment_bytes} is not within {self.max_body_bytes + MIN_SEGMENT_BYTES} "
                f"(an entry of max_body_bytes and a blank record) .. {MAX_SEGMENT_BYTES}",
            )
        check_index_segment_bytes(self.index_segment_bytes)
        if not 0 <= self.spare_segments <= 8:
            raise ConfigInvalid("spare_segments", f"{self.spare_segments} is not within 0..8")
        if self.checkpoint_bytes < 1:
            raise ConfigInvalid("checkpoint_bytes", f"{self.checkpoint_bytes} is not positive")
        if self.reserve_bytes < 0:
            raise ConfigInvalid("reserve_bytes", "must not be negative; 0 switches it off")


def check_index_segment_bytes(size: int) -> None:
    """Raise ConfigInvalid unless whole index units fill a file of `size` bytes."""
    if not UNIT_BYTES <= size <= MAX_SEGMENT_BYTES or size % UNIT_BYTES:
        raise ConfigInvalid(
            "index_segment_bytes",
            f"{size} is not a multiple of {UNIT_BYTES} within {UNIT_BYTES}..{MAX_SEGMENT_BYTES}",
        )
