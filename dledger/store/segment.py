"""A run of files of one length that hold one address space (as Java's MmapFileList).

Each file is named by its first position in 20 digits. New files are zero, and cut bytes are zeroed,
so every byte after the written part of the last file is zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dledger.errors import LogCorrupt
from dledger.store.disk import Disk, DiskFile, SyncFailed

NAME_DIGITS = 20
# Open files of one kind: enough for the readers of a busy node, far below the usual limit of
# 1024 descriptors of a process, which may hold many groups.
MAX_OPEN_FILES = 32
# One write of zeros: large enough that the disk is the limit, small enough to hold in memory.
ZERO_PIECE_BYTES = 1024 * 1024
MAGIC_BYTES = 4
# Comparing with it is many times faster than searching for a byte that is not zero.
_ZEROS = bytes(ZERO_PIECE_BYTES)


def file_name(start: int) -> str:
    """Return the name of the file that begins at position `start`."""
    return f"{start:0{NAME_DIGITS}d}"


def start_of(name: str) -> int | None:
    """Return the position in a file's name; None if the name is not a segment's."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


def _is_zero(data: bytes) -> bool:
    return data == (_ZEROS if len(data) == ZERO_PIECE_BYTES else bytes(len(data)))


@contextmanager
def _syncing() -> Iterator[None]:
    """Raise SyncFailed for an OSError of the block, which syncs."""
    try:
        yield
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, error.filename) from error


def check_spacing(folder: str, starts: list[int], segment_bytes: int) -> None:
    """Raise LogCorrupt unless the files follow one another without a gap."""
    expected = starts[0] if starts else 0
    if expected % segment_bytes:
        problem = f"the file's name is not a multiple of the file length {segment_bytes}"
        raise LogCorrupt(f"{folder}/{file_name(expected)}", 0, problem)
    for start in starts:
        if start != expected:
            problem = "the file is missing between two others"
            raise LogCorrupt(f"{folder}/{file_name(expected)}", 0, problem)
        expected += segment_bytes


class SegmentFiles:
    """The files of `data/` or of `index/`. Errors of the disk pass through as OSError.

    With `writable` False they are only read: they may be those of another user, or on a disk that
    is read-only.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segment_bytes: int,
        starts: Iterable[int] = (),
        *,
        writable: bool = True,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.starts = sorted(starts)
        self._writable = writable
        self._spares: SpareSegments | None = None
        self._open: OrderedDict[int, DiskFile] = OrderedDict()
        self._dirty: set[int] = set()
        self._syncing: dict[int, DiskFile] = {}
        self._retired: list[DiskFile] = []

    def use_spares(self, spares: SpareSegments) -> None:
        """Take new files from `spares` while it has any."""
        self._spares = spares

    @property
    def begin(self) -> int:
        """The start of the first file; 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def end(self) -> int:
        """The position after the last file; 0 without files."""
        return self.starts[-1] + self.segment_bytes if self.starts else 0

    def path(self, pos: int) -> str:
        return f"{self.folder}/{file_name(pos - pos % self.segment_bytes)}"

    def file(self, pos: int) -> DiskFile:
        start = pos - pos % self.segment_bytes
        file = self._open.get(start)
        if file is None:
            file = self._disk.open(self.path(start), writable=self._writable)
            self._open[start] = file
            self._close_idle(but=start)
        else:
            self._open.move_to_end(start)
        return file

    def create(self, start: int) -> None:
        """Add the file that begins at `start`; its length and its name are durable on return.

        Because of these syncs a power cut never causes a gap between the files, or a short file
        that is not the last: recovery can refuse both. They happen once a segment, and a spare
        saves the first of the two.
        """
        path = self.path(start)
        if self._spares is None or not self._spares.take(path):
            file = self._disk.create(path)
            try:
                file.grow(self.segment_bytes)
            except OSError:
                file.close()
                self._disk.remove(path)  # so that it can be created once there is room
                raise
            self._open[start] = file
            with _syncing():
                file.sync()
        with _syncing():
            self._disk.sync_folder(self.folder)
        self.starts.append(start)
        self._close_idle(but=start)

    def read(self, size: int, pos: int) -> bytes:
        """Read `size` bytes at `pos`, across files if needed; fewer at the end of the last file."""
        within = pos % self.segment_bytes
        if within + size <= self.segment_bytes:
            return self.file(pos).read(size, within)
        parts = []
        end = min(pos + size, self.end)
        while pos < end:
            within = pos % self.segment_bytes
            part = min(end - pos, self.segment_bytes - within)
            parts.append(self.file(pos).read(part, within))
            pos += part
        return b"".join(parts)

    def write(self, data: bytes, pos: int) -> None:
        """Write at `pos`, across files if needed; creates missing files at the end."""
        if not self.starts:
            self.create(pos - pos % self.segment_bytes)
        while pos + len(data) > self.end:
            self.create(self.end)
        within = pos % self.segment_bytes
        if within + len(data) <= self.segment_bytes:
            self.file(pos).write(data, within)
            self._dirty.add(pos - within)
            return
        at = 0
        while at < len(data):
            within = pos % self.segment_bytes
            part = min(len(data) - at, self.segment_bytes - within)
            self.file(pos).write(data[at : at + part], within)
            self._dirty.add(pos - within)
            at += part
            pos += part

    def zero(self, pos: int, end: int) -> None:
        """Zero pos..end where it is not zero already, without creating files."""
        end = min(end, self.end)
        while pos < end:
            within = pos % self.segment_bytes
            part = min(end - pos, self.segment_bytes - within, ZERO_PIECE_BYTES)
            found = self.file(pos).read(part, within)
            if not _is_zero(found):
                self.file(pos).write(bytes(len(found.rstrip(b"\0"))), within)
                self._dirty.add(pos - within)
            pos += part

    def is_zero(self, pos: int) -> bool:
        """Return whether every byte from `pos` on is zero."""
        while pos < self.end:
            within = pos % self.segment_bytes
            part = min(self.segment_bytes - within, ZERO_PIECE_BYTES)
            if not _is_zero(self.file(pos).read(part, within)):
                return False
            pos += part
        return True

    def cut_at(self, pos: int, written_end: int) -> None:
        """Drop all bytes from `pos` on; durable on return.

        In the file of `pos` nothing is written after `written_end`.

        Later files are removed first. Then the magic at `pos` is zeroed and synced, alone: only one
        byte of it is not zero, so this is atomic. From then on the log ends at `pos`, however much
        of the rest reaches the disk.
        """
        self.drop_from(pos - pos % self.segment_bytes + self.segment_bytes)
        if pos >= self.end:
            return
        if any(self.read(MAGIC_BYTES, pos)):
            self.write(bytes(MAGIC_BYTES), pos)
            self.file(pos).sync()
        self.zero(pos, min(written_end, self.end))
        self.file(pos).sync()

    def drop_from(self, start: int) -> None:
        """Remove the files that begin at `start` or later, the last one first.

        Each removal is durable before the next one, so that no crash leaves a gap.
        """
        while self.starts and self.starts[-1] >= start:
            self._remove(self.starts[-1])
            self._disk.sync_folder(self.folder)
            self.starts.pop()

    def drop_before(self, start: int) -> None:
        """Remove the files that end at `start` or earlier, the first one first."""
        while self.starts and self.starts[0] + self.segment_bytes <= start:
            self._remove(self.starts[0])
            self._disk.sync_folder(self.folder)
            self.starts.pop(0)

    def forget_before(self, start: int) -> list[str]:
        """Forget the files that end at `start` or earlier, and return their paths.

        The caller removes them, in any thread.
        """
        paths = []
        while self.starts and self.starts[0] + self.segment_bytes <= start:
            first = self.starts.pop(0)
            self._give_up(first)
            paths.append(self.path(first))
        return paths

    def mark_dirty(self, starts: Iterable[int]) -> None:
        """Have the next sync include these files, to which another part wrote."""
        self._dirty.update(starts)

    @property
    def first_dirty(self) -> int:
        """The start of the first dirty file; -1 if there is none."""
        return min(self._dirty, default=-1)

    def take_dirty(self) -> list[DiskFile]:
        """Return the dirty files, in order, for a sync elsewhere. They stay open until `settle`."""
        self._syncing = {start: self.file(start) for start in sorted(self._dirty)}
        self._dirty.clear()
        return list(self._syncing.values())

    def sync_dirty(self) -> None:
        """Sync the dirty files in this thread."""
        for file in self.take_dirty():
            file.sync()
        self.settle()

    def settle(self) -> None:
        """End the sync of the files from `take_dirty`."""
        self._syncing = {}
        for file in self._retired:
            file.close()
        self._retired.clear()
        self._close_idle()

    def close(self) -> None:
        self.settle()
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _remove(self, start: int) -> None:
        self._give_up(start)
        self._disk.remove(self.path(start))

    def _give_up(self, start: int) -> None:
        """Close the file now, or after the sync that uses it."""
        file = self._open.pop(start, None)
        self._dirty.discard(start)
        if file is not None:
            if start in self._syncing:
                self._retired.append(file)
            else:
                file.close()

    def _close_idle(self, but: int | None = None) -> None:
        """Close the least recently used files that are not needed open, down to the limit."""
        if len(self._open) <= MAX_OPEN_FILES:
            return
        for start in list(self._open):
            if start in self._syncing or start in self._dirty or start == but:
                continue
            self._open.pop(start).close()
            if len(self._open) <= MAX_OPEN_FILES:
                return


_SUFFIX = ".spare"


class SpareSegments:
    """Data files written ahead, so that a sync never has to allocate.

    A sync of a file whose blocks are written already takes about half the time of one that grows.
    `prepare` writes zeros to a file in the folder `spare` (in a thread, ahead of need); a roll then
    only renames it. Without a spare a sparse file is used, as for the first segment of a log.

    `prepare` may run in another thread; only whole, synced files get the name that `take` finds.
    """

    def __init__(self, disk: Disk, folder: str, segment_bytes: int, count: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._count = count
        self._ready: list[str] = []
        self._made = 0

    def open(self) -> None:
        """Create the folder, and remove the files of an earlier process from it."""
        self._disk.make_folder(self._folder)
        for name in self._disk.list(self._folder):
            self._disk.remove(f"{self._folder}/{name}")

    @property
    def wanted(self) -> bool:
        """Whether fewer files are ready than configured."""
        return len(self._ready) < self._count

    def prepare(self) -> None:
        """Write one file of zeros and sync it, if one is wanted. Raises OSError."""
        if not self.wanted:
            return
        self._made += 1
        path = f"{self._folder}/{self._made}{_SUFFIX}"
        file = self._disk.create(path)
        try:
            zeros = bytes(min(ZERO_PIECE_BYTES, self._segment_bytes))
            at = 0
            while at < self._segment_bytes:
                part = min(len(zeros), self._segment_bytes - at)
                file.write(zeros[:part], at)
                # Piece by piece: one sync of the whole file would delay the syncs of the log.
                file.sync()
                at += part
        except OSError:
            file.close()
            self._disk.remove(path)  # a full disk needs the space
            raise
        file.close()
        self._ready.append(path)

    def take(self, path: str) -> bool:
        """Move a spare to `path`; False when none is ready. The caller syncs the folder."""
        if not self._ready:
            return False
        self._disk.rename(self._ready.pop(0), path)
        return True
