"""One message queue: where its messages lie in the log, 20 bytes each, in files of 300,000.

RocketMQ's format: unit i of a queue lies at byte 20 i of its files, a file's name is the byte it
begins with, in 20 digits. The files are a fold over the log and nothing in them is believed before
the fold has passed it: `end` is what was applied, units behind it are leftovers that the next
batch overwrites. So a missing, short or torn file costs nothing but the replay that happens anyway,
and no file is ever synced.
"""

import os
from collections.abc import Callable
from typing import Final, NoReturn

from dledger.errors import DiskFailed

UNIT_BYTES: Final = 20
UNITS_PER_FILE: Final = 300_000
FILE_BYTES: Final = UNIT_BYTES * UNITS_PER_FILE

# Kept in memory a queue, for consumers that keep up: 20 pulls of 32 messages.
TAIL_BYTES: Final = 640 * UNIT_BYTES


class ConsumeQueue:
    """The units of one queue of one topic.

    Args:
        folder: where its files lie; made with the first batch.
        open_file: gives a descriptor for a path, which stays open until the next call at least.
        units_per_file: 300,000 but in tests.
    """

    __slots__ = ("_file_bytes", "_folder", "_open_file", "_tail", "_tail_first", "end")

    def __init__(
        self,
        folder: str,
        open_file: Callable[[str], int],
        units_per_file: int = UNITS_PER_FILE,
    ) -> None:
        self.end = 0  # the offset of the next message
        self._folder = folder
        self._open_file = open_file
        self._file_bytes = units_per_file * UNIT_BYTES
        self._tail = b""
        self._tail_first = 0

    def append(self, units: bytes) -> None:
        """Add whole units behind the last one.

        Raises:
            DiskFailed: a file could not be written.
        """
        if self.end == 0:
            try:
                os.makedirs(self._folder, exist_ok=True)
            except OSError as error:
                raise DiskFailed("makedirs", self._folder, error) from error
        position, at = self.end * UNIT_BYTES, 0
        while at < len(units):
            within = (position + at) % self._file_bytes
            piece = units[at : at + self._file_bytes - within]
            self._write(position + at - within, within, piece)
            at += len(piece)
        self.end += len(units) // UNIT_BYTES
        self._tail = (self._tail + units)[-TAIL_BYTES:]
        self._tail_first = self.end - len(self._tail) // UNIT_BYTES

    def read(self, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`; fewer at the queue's end.

        Raises:
            DiskFailed: a file could not be read, or does not hold what was written to it.
        """
        last = min(first + count, self.end)
        if first >= last or first < 0:
            return b""
        if first >= self._tail_first:
            begin = (first - self._tail_first) * UNIT_BYTES
            return self._tail[begin : begin + (last - first) * UNIT_BYTES]
        position, end = first * UNIT_BYTES, last * UNIT_BYTES
        parts: list[bytes] = []
        while position < end:
            within = position % self._file_bytes
            size = min(end - position, self._file_bytes - within)
            parts.append(self._read(position - within, within, size))
            position += size
        return b"".join(parts)

    def _path(self, file_start: int) -> str:
        return os.path.join(self._folder, f"{file_start:020d}")

    def _write(self, file_start: int, within: int, data: bytes) -> None:
        path = self._path(file_start)
        try:
            written = os.pwrite(self._open_file(path), data, within)
        except OSError as error:
            raise DiskFailed("pwrite", path, error) from error
        if written != len(data):
            _fail("pwrite", path, f"only {written} of {len(data)} bytes were written")

    def _read(self, file_start: int, within: int, size: int) -> bytes:
        path = self._path(file_start)
        try:
            data = os.pread(self._open_file(path), size, within)
        except OSError as error:
            raise DiskFailed("pread", path, error) from error
        if len(data) != size:
            _fail("pread", path, f"{len(data)} of {size} bytes are there; was the file cut?")
        return data


def _fail(operation: str, path: str, problem: str) -> NoReturn:
    raise DiskFailed(operation, path, OSError(problem))
