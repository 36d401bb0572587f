"""The file by which a run steers the calls of one member; the member reads it all the time.

Seven numbers of 8 bytes, in the byte order of the machine; calls.c has the same layout:

    sync_delay_ms   each sync takes so much longer
    syncs_to_fail   so many syncs end with EIO; all of them if negative
    clock_step_ms   how far the wall clock is ahead; behind if negative
    loaded          how many processes have the library; the member counts this and the following
    syncs_delayed   syncs that took longer
    syncs_failed    syncs that ended with EIO
    times_stepped   readings of the wall clock that were ahead or behind

Then 16 paths of 512 bytes, each with a zero at its end: the files whose syncs failed last, in turn.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

FIELDS: Final = 7
FIELD_BYTES: Final = 8
PATHS: Final = 16
PATH_BYTES: Final = 512
SIZE_BYTES: Final = FIELDS * FIELD_BYTES + PATHS * PATH_BYTES
EVERY_SYNC: Final = -1


class Steering:
    """The steering of one member. A setting holds for its later processes, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("x+b") as file:
            file.truncate(SIZE_BYTES)
            self._shared = mmap.mmap(file.fileno(), SIZE_BYTES)
        self._fields = memoryview(self._shared).cast("q")

    def delay_syncs(self, delay_ms: int) -> None:
        """Let each sync take longer, those that wait now included."""
        self._fields[0] = delay_ms

    def fail_syncs(self, syncs: int) -> None:
        """Let so many syncs fail, or EVERY_SYNC."""
        self._fields[1] = syncs

    def step_clock(self, step_ms: int) -> None:
        """Set the wall clock so far ahead of the machine's, or behind it if negative."""
        self._fields[2] = step_ms

    @property
    def is_loaded(self) -> bool:
        return self._fields[3] > 0

    @property
    def syncs_delayed(self) -> int:
        return self._fields[4]

    @property
    def syncs_failed(self) -> int:
        return self._fields[5]

    @property
    def times_stepped(self) -> int:
        return self._fields[6]

    def failed_since(self, syncs: int) -> list[Path]:
        """Return the files whose syncs failed since so many had failed: the last ones of many."""
        return [Path(self._path(number)) for number in range(syncs, self.syncs_failed)[-PATHS:]]

    def _path(self, number: int) -> str:
        begin = FIELDS * FIELD_BYTES + number % PATHS * PATH_BYTES
        return self._shared[begin : begin + PATH_BYTES].partition(b"\0")[0].decode()

    def heal(self) -> None:
        """Undo all faults."""
        for field in range(3):
            self._fields[field] = 0

    def close(self) -> None:
        self._fields.release()
        self._shared.close()
