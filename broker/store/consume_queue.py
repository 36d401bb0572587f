"""One consume queue: the positions of its messages in the log, 20 bytes each, 300,000 per file.

RocketMQ's format: unit i of a queue lies at byte 20 i of its files. A file is named by the byte it
begins with, in 20 digits. The files are a fold over the log. Units behind `end` are leftovers that
the next batch overwrites. Units that a snapshot stands for were synced before it (`queue_sync`);
all others are written again by the replay after the snapshot. So the newest units may be in memory
only, and many are written at a time.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

from broker.messages.record_facts import UNIT
from broker.store.consume_queue_disk import OS_DISK, ConsumeQueueDisk
from dledger import DiskFailed

UNIT_BYTES: Final = 20
UNITS_PER_FILE: Final = 300_000
FILE_BYTES: Final = UNIT_BYTES * UNITS_PER_FILE

# The newest units of a queue, in memory for consumers that keep up: 20 pulls of 32 messages.
TAIL_BYTES: Final = 640 * UNIT_BYTES

# Units of the tail that are written at once: a page of the file. A write for each message took a
# tenth of the time of a send, on each member.
WRITE_UNITS: Final = 204

# Returns a descriptor of a path, which stays open until the next call at least; the second argument
# says whether the caller will write.
OpenFile: TypeAlias = Callable[[str, bool], int]


class ConsumeQueue:
    """The units of one queue of one topic.

    Args:
        folder: of its files; created with the first units.
        units_per_file: 300,000 except in tests.
        write_units: how many units are written at once; at most those of the tail.
        first: the offset of its first message ever.

    Attributes:
        end: the offset of the next message.
        floor: the first unit that is left; files before it were removed.
    """

    __slots__ = (
        "_begin",
        "_disk",
        "_file_bytes",
        "_kept_position",
        "_open_file",
        "_suspect",
        "_tail",
        "_tail_first",
        "_unwritten",
        "_write_units",
        "end",
        "first",
        "floor",
        "folder",
    )

    def __init__(
        self,
        folder: str,
        open_file: OpenFile,
        units_per_file: int = UNITS_PER_FILE,
        disk: ConsumeQueueDisk = OS_DISK,
        write_units: int = WRITE_UNITS,
        first: int = 0,
    ) -> None:
        self.first = first
        self.end = first
        self.floor = first
        self.folder = folder
        self._disk = disk
        self._open_file = open_file
        self._file_bytes = units_per_file * UNIT_BYTES
        self._tail = b""
        self._tail_first = first
        self._write_units = write_units
        self._unwritten = 0  # units at the end of the tail that the files lack
        self._suspect = False  # whether more files may be missing than retention removes
        self._begin = first  # the first unit whose message lies at or after `_kept_position`
        self._kept_position = 0

    def resume(self, end: int) -> bool:
        """Continue with the files of an earlier run; return whether they hold the units before
        `end`.

        If not, `put_back` has to write them. The last file always exists, and so do those before
        it, up to the first that retention has left. Raises DiskFailed.
        """
        self.end = self._tail_first = end
        self._unwritten = 0
        sizes = self._file_sizes()
        needed = end * UNIT_BYTES  # the files have everything from here on
        file_start = (needed - 1) // self._file_bytes * self._file_bytes
        while file_start >= 0 and sizes.get(file_start, 0) >= needed - file_start:
            needed = file_start
            file_start -= self._file_bytes
        if needed == end * UNIT_BYTES or any(start < needed for start in sizes):
            return False  # there are no files, or files before a gap
        self.floor = max(self.first, needed // UNIT_BYTES)
        self._suspect = self.floor > self.first
        return True

    def put_back(self, first: int, units: bytes) -> None:
        """Write missing units before `end`. Raises DiskFailed."""
        self._write_at(first, units, self._open_file)

    def begins_with(self, first: int) -> None:
        """Note that all of the log was read, and that `first` is the first unit in it. Raises
        DiskFailed.
        """
        if first > self.first:
            # The file of the previous unit always exists: see `remove_files`. A message that was
            # dropped with the log has position 0.
            self._write_at(first - 1, bytes(UNIT_BYTES), self._open_file)
        self.floor = self._begin = first
        self._kept_position = 0  # the answer from before the rebuild is wrong
        self._suspect = False

    def append(self, units: bytes) -> bool:
        """Append whole units; return whether `flush` has something to write. Raises DiskFailed."""
        count = len(units) // UNIT_BYTES
        self._unwritten += count
        self.end += count
        tail = self._tail + units
        if self._unwritten >= self._write_units:
            self._write_end(tail)
        self._tail = tail[-TAIL_BYTES:]
        self._tail_first = self.end - len(self._tail) // UNIT_BYTES
        return self._unwritten > 0

    @property
    def written(self) -> int:
        """The offset after the last unit in the files."""
        return self.end - self._unwritten

    def unwritten(self) -> bytes:
        """Return the units that are only in memory: those from `written` on."""
        return self._tail[-self._unwritten * UNIT_BYTES :] if self._unwritten else b""

    def paths(self, first: int, end: int) -> list[str]:
        starts = range(
            first * UNIT_BYTES // self._file_bytes, -(-end * UNIT_BYTES // self._file_bytes)
        )
        return [self._path(number * self._file_bytes) for number in starts]

    def write_beside(self, first: int, units: bytes, open_file: OpenFile) -> None:
        """Write units from `unwritten`, in any thread, unless they were written meanwhile. Raises
        DiskFailed.

        The queue may be writing the same units: they are the same bytes in the same place.
        """
        if self.written < first + len(units) // UNIT_BYTES:
            self._write_at(first, units, open_file)

    def note_written(self, end: int) -> None:
        """Note that `write_beside` has written the units before `end`."""
        self._unwritten = min(self._unwritten, self.end - end)

    def flush(self) -> None:
        """Write the units that are only in memory. Raises DiskFailed."""
        if self._unwritten:
            self._write_end(self._tail)

    def _write_end(self, tail: bytes) -> None:
        self._write_at(self.written, tail[-self._unwritten * UNIT_BYTES :], self._open_file)
        self._unwritten = 0

    def read(self, first: int, count: int) -> bytes:
        """Read up to `count` units from offset `first`; fewer at the queue's end, none before
        `floor`.

        Raises DiskFailed: a file cannot be read, or is too short.
        """
        last = min(first + count, self.end)
        if first >= last or first < self.floor:
            return b""
        if first >= self._tail_first:
            begin = (first - self._tail_first) * UNIT_BYTES
            return self._tail[begin : begin + (last - first) * UNIT_BYTES]
        position, end = first * UNIT_BYTES, min(last, self._tail_first) * UNIT_BYTES
        parts: list[bytes] = []
        while position < end:
            within = position % self._file_bytes
            size = min(end - position, self._file_bytes - within)
            parts.append(self._read(position - within, within, size))
            position += size
        if last > self._tail_first:
            parts.append(self._tail[: (last - self._tail_first) * UNIT_BYTES])
        return b"".join(parts)

    def begin(self, kept_position: int) -> int:
        """Return the offset of the first message at or after a position of the log. Raises
        DiskFailed.

        The answer is kept for the next call with the same position: positions only grow along a
        queue.
        """
        if kept_position != self._kept_position:
            # The position only grows, except when a state is restored.
            low = self._begin if kept_position > self._kept_position else self.first
            offsets = range(max(low, self.floor), self.end)
            begin = offsets.start + bisect_left(offsets, kept_position, key=self._position)
            if self._suspect and begin == self.floor:
                problem = "files are missing: stop the broker, remove the folder, start it again"
                _fail("read", self.folder, problem)
            self._suspect = False
            self._begin, self._kept_position = begin, kept_position
        return self._begin

    def remove_files(self, begin: int) -> list[str]:
        """Forget whole files before unit `begin`, and return their paths.

        The file of the unit before `begin` stays. So a queue whose first file begins after its
        first message is damaged.
        """
        first_file = max(0, begin - 1) * UNIT_BYTES // self._file_bytes * self._file_bytes
        file_start = self.floor * UNIT_BYTES // self._file_bytes * self._file_bytes
        given_up = [self._path(at) for at in range(file_start, first_file, self._file_bytes)]
        self.floor = max(self.floor, first_file // UNIT_BYTES)
        return given_up

    def _file_sizes(self) -> dict[int, int]:
        try:
            self._disk.make_folder(self.folder)
            sizes = self._disk.sizes(self.folder)
        except OSError as error:
            raise DiskFailed("look at", self.folder, error) from error
        return {int(name): size for name, size in sizes.items() if name.isdecimal()}

    def _position(self, offset: int) -> int:
        position: int = UNIT.unpack(self.read(offset, 1))[0]
        return position

    def _path(self, file_start: int) -> str:
        return f"{self.folder}/{file_start:020d}"

    def _write_at(self, first: int, units: bytes, open_file: OpenFile) -> None:
        position, at = first * UNIT_BYTES, 0
        while at < len(units):
            within = (position + at) % self._file_bytes
            piece = units[at : at + self._file_bytes - within]
            self._write(position + at - within, within, piece, open_file)
            at += len(piece)

    def _write(self, file_start: int, within: int, data: bytes, open_file: OpenFile) -> None:
        path = self._path(file_start)
        try:
            written = self._disk.write(self._opened_to_write(path, open_file), data, within)
        except OSError as error:
            raise DiskFailed("pwrite", path, error) from error
        if written != len(data):
            _fail("pwrite", path, f"only {written} of {len(data)} bytes were written")

    def _opened_to_write(self, path: str, open_file: OpenFile) -> int:
        try:
            return open_file(path, True)
        except FileNotFoundError:
            self._disk.make_folder(self.folder)
            return open_file(path, True)

    def _read(self, file_start: int, within: int, size: int) -> bytes:
        path = self._path(file_start)
        try:
            data = self._disk.read(self._open_file(path, False), size, within)
        except OSError as error:
            raise DiskFailed("pread", path, error) from error
        if len(data) != size:
            _fail("pread", path, f"{len(data)} of {size} bytes are there; was the file cut?")
        return data


def _fail(operation: str, path: str, problem: str) -> NoReturn:
    raise DiskFailed(operation, path, OSError(problem))
