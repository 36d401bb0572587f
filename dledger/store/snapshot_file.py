"""Writes and reads one snapshot file, piece by piece; see `snapshot_format` for its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn
from zlib import crc32

from dledger.errors import SnapshotCorrupt
from dledger.store.disk import Disk, DiskFile
from dledger.store.snapshot_format import (
    CHUNK,
    END_BYTES,
    END_MARK,
    MAX_CHUNK_BYTES,
    START,
    SUM,
    SnapshotHeader,
    chunk_sum,
    decode_header,
    encode_end,
    encode_header,
    header_size,
)

# The size of one write, and of one read.
WINDOW_BYTES = 1024 * 1024
# A sync of a whole snapshot would delay the syncs of the log, which share the disk's queue.
SYNC_BYTES = 8 * 1024 * 1024


class SnapshotWriter:
    """A new snapshot under a temporary name. Errors of the disk pass through as OSError.

    May be used in any thread, by one at a time.
    """

    def __init__(self, disk: Disk, path: str, header: SnapshotHeader) -> None:
        content = encode_header(header)
        self._file = disk.create(path)
        self._parts = [content]
        self._waiting = len(content)
        self._at = 0
        self._synced = 0
        self._chunks = 0
        self._content_bytes = 0
        self._sum_of_sums = crc32(content[-SUM.size :])

    def add(self, chunk: bytes) -> None:
        """Write one chunk. Raises ValueError if it is larger than 16 MiB."""
        size = len(chunk)
        if size > MAX_CHUNK_BYTES:
            raise ValueError(
                f"a chunk of {size} bytes; the limit is {MAX_CHUNK_BYTES}: give smaller ones"
            )
        check = chunk_sum(chunk)
        self._sum_of_sums = crc32(SUM.pack(check), self._sum_of_sums)
        self._chunks += 1
        self._content_bytes += size
        self._parts += (CHUNK.pack(size, check), chunk)
        self._waiting += CHUNK.size + size
        if self._waiting >= WINDOW_BYTES:
            self._write()

    def finish(self) -> int:
        """Write the closing record, sync and close the file; return its length."""
        self._parts.append(encode_end(self._chunks, self._content_bytes, self._sum_of_sums))
        self._write()
        self._file.sync()
        self._file.close()
        return self._at

    def close(self) -> None:
        """Close the unfinished file."""
        self._file.close()

    def _write(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._waiting = 0
        self._file.write(data, self._at)
        self._at += len(data)
        if self._at - self._synced >= SYNC_BYTES:
            self._file.sync()
            self._synced = self._at


class _Reading:
    """A file read from its beginning on, a window at a time."""

    def __init__(self, file: DiskFile) -> None:
        self.at = 0  # offset of the next byte to be taken
        self.size = file.size()
        self._file = file
        self._window = b""
        self._begin = 0

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes; fewer at the end. Allocates no more than the file holds."""
        size = min(size, self.size - self.at)
        offset = self.at - self._begin
        if offset + size > len(self._window):
            self._window = self._file.read(max(size, WINDOW_BYTES), self.at)
            self._begin, offset = self.at, 0
        taken = self._window[offset : offset + size]
        self.at += len(taken)
        return taken


class SnapshotReader:
    """An existing snapshot file.

    Raises SnapshotCorrupt when its header is broken, OSError when it cannot be read.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        with closing(disk.open(path, writable=False)) as file:
            self.size = file.size()
            self.header, _ = self._header(_Reading(file))

    def verify(self) -> None:
        """Read all chunks, which checks every sum. Raises SnapshotCorrupt or OSError."""
        for _ in self.chunks():
            pass

    def sync(self) -> None:
        """Make the content durable: an operator may have copied the file without a sync."""
        with closing(self._disk.open(self.path, writable=False)) as file:
            file.sync()

    def chunks(self) -> Iterator[bytes]:
        """Yield the state machine's chunks, each one checked first.

        The closing record is checked after the last chunk. Raises SnapshotCorrupt or OSError.
        """
        with closing(self._disk.open(self.path, writable=False)) as file:
            reading = _Reading(file)
            _, sum_of_sums = self._header(reading)
            count = content_bytes = 0
            while True:
                prefix = reading.take(CHUNK.size)
                if len(prefix) < CHUNK.size:
                    self._refuse(reading, "the file ends where a chunk is expected")
                size, check = CHUNK.unpack(prefix)
                if size == END_MARK:
                    break
                if size > MAX_CHUNK_BYTES or size > reading.size - reading.at:
                    self._refuse(reading, f"a chunk of {size} bytes is too large")
                chunk = reading.take(size)
                if chunk_sum(chunk) != check:
                    self._refuse(reading, f"chunk {count} does not match its CRC")
                sum_of_sums = crc32(prefix[SUM.size :], sum_of_sums)
                count += 1
                content_bytes += size
                yield chunk
            end = prefix + reading.take(END_BYTES - CHUNK.size)
            if end != encode_end(count, content_bytes, sum_of_sums):
                self._refuse(reading, "the closing record does not match the chunks")
            if reading.at != reading.size:
                self._refuse(reading, "something follows the closing record")

    def _header(self, reading: _Reading) -> tuple[SnapshotHeader, int]:
        """Return the header, and the CRC of its CRC."""
        start = reading.take(START.size)
        size = header_size(start)
        if size is None:
            self._refuse(reading, "no header of a snapshot")
        content = start + reading.take(size - START.size)
        header = decode_header(content) if len(content) == size else None
        if header is None:
            self._refuse(reading, "the header does not match its CRC")
        return header, crc32(content[-SUM.size :])

    def _refuse(self, reading: _Reading, problem: str) -> NoReturn:
        raise SnapshotCorrupt(self.path, reading.at, problem)
