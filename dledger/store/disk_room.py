"""Whether the disk of a member has room for entries, and how the member goes on without room.

The disk is short of room from the first write that fails for lack of it, or once less is free than
the size of the reserve. It has room again once the reserve fits, and a little more than its size
besides. While the disk is short, the reserve is removed, and

* the member refuses appends of applications (DiskFull), unless they help to free room;
* it accepts few entries, of its leader or its own: up to half of the reserve, so that the rest is
  left for records, snapshots, and the files of its state machine;
* one snapshot is enough to drop the log before it.

A write of the log or of a record that fails for lack of room is tried again once. A sync is never
tried again. A snapshot that finds no room fails, and its file is removed: there may be room without
it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

from dledger.store.disk import Disk, DiskFile, DiskLock
from dledger.system_refusals import Kind, is_of, told

logger = logging.getLogger(__name__)

FILE_NAME = "reserve"

# How often the disk is checked while it is short: room comes from operators and from retention.
SHORT_LOOK_S = 1.0

# The disk counts as having room again once so many times the reserve are free, besides the reserve
# itself. So the state does not change with every file, and one dropped segment is often enough.
ROOMY = 1.25

# The reserve takes at most this fraction of a small disk.
PART_OF_DISK = 16

# A write of a record or of a name is no longer than this, and may always be tried again.
RECORD_BYTES = 4096

T = TypeVar("T")

# Called with the error of a write that found no room, and its size; returns whether to try again.
RanOut = Callable[[OSError, int], bool]


class Reserve:
    """A file that takes up room on the disk of a member, to be removed when the disk is full.

    Its room lets the member go on: for records of term and vote, entries that free other room, a
    snapshot, and the start of a member that ended because of the full disk.

    Args:
        disk: the disk itself, not the one that gives up the reserve.
        folder: of the member.
        size_bytes: its size; with 0 there is no reserve.
    """

    def __init__(self, disk: Disk, folder: str, size_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self.size_bytes = size_bytes

    @property
    def is_made(self) -> bool:
        """Whether the file exists in full size. Raises OSError."""
        if FILE_NAME not in self._disk.list(self._folder):
            return False
        with contextlib.closing(self._disk.open(self._path, writable=False)) as file:
            return file.size() >= self.size_bytes

    def make(self) -> None:
        """Take up the room, unless the file exists. Raises OSError; then there is no file.

        Not synced: a power cut that loses it leaves its room free, and the next start makes it
        again.
        """
        if not self.size_bytes or self.is_made:
            return
        self.give_up()
        file = self._disk.create(self._path)
        try:
            file.allocate(self.size_bytes)
        except OSError:
            file.close()
            self.give_up()
            raise
        file.close()

    def give_up(self) -> bool:
        """Free the room; return whether there was any."""
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)
            return True
        return False


class _ReservingFile:
    """A file that tries a write again, once, if there was no room for it."""

    __slots__ = ("_file", "_ran_out", "close", "read", "size", "sync")

    def __init__(self, file: DiskFile, ran_out: RanOut) -> None:
        self._file = file
        self._ran_out = ran_out
        self.read = file.read
        self.size = file.size
        self.sync = file.sync
        self.close = file.close

    @property
    def path(self) -> str:
        return self._file.path

    def write(self, data: bytes, at: int) -> None:
        try:
            self._file.write(data, at)
        except OSError as error:
            if not (is_of(Kind.ROOM, error) and self._ran_out(error, len(data))):
                raise
            self._file.write(data, at)

    def grow(self, size: int) -> None:
        _try_twice(self._ran_out, lambda: self._file.grow(size))

    def allocate(self, size: int) -> None:
        _try_twice(self._ran_out, lambda: self._file.allocate(size))


class _ReservingDisk:
    """A disk that tries a write again, once, if there was no room for it.

    `ran_out` gives up the reserve before the second try; another thread may have just done so.
    Syncs are not tried again: after a failed one nothing is known of the file.
    """

    def __init__(self, disk: Disk, ran_out: RanOut) -> None:
        self._disk = disk
        self._ran_out = ran_out
        self.list = disk.list
        self.remove = disk.remove
        self.sync_folder = disk.sync_folder

    def make_folder(self, path: str) -> None:
        _try_twice(self._ran_out, lambda: self._disk.make_folder(path))

    def open(self, path: str, *, writable: bool = True) -> _ReservingFile:
        return _ReservingFile(self._disk.open(path, writable=writable), self._ran_out)

    def create(self, path: str) -> _ReservingFile:
        file = _try_twice(self._ran_out, lambda: self._disk.create(path))
        return _ReservingFile(file, self._ran_out)

    def rename(self, old: str, new: str) -> None:
        _try_twice(self._ran_out, lambda: self._disk.rename(old, new))

    def lock(self, path: str) -> DiskLock:
        return _try_twice(self._ran_out, lambda: self._disk.lock(path))


def _try_twice(ran_out: RanOut, work: Callable[[], T]) -> T:
    """Do some work; do it again, once, if it found no room."""
    try:
        return work()
    except OSError as error:
        if not (is_of(Kind.ROOM, error) and ran_out(error, 0)):
            raise
    return work()


class DiskRoom:
    """The room of one member.

    Args:
        disk: of the system.
        reserve: given up when a write fails for lack of room.
        free_bytes: returns the free bytes of the disk.

    Attributes:
        disk: where the log and the records of the member are written.
        why_short: what is refused and what to do about it; None while there is room.
        on_short: called when room becomes short, in any thread.
    """

    def __init__(self, disk: Disk, reserve: Reserve, free_bytes: Callable[[], int]) -> None:
        self._plain = disk
        self._reserve = reserve
        self._free_bytes = free_bytes
        self._allowance_bytes = 0
        self._next_look_at = 0.0
        self.why_short: str | None = None
        self.on_short: Callable[[], None] = lambda: None
        self.disk: Disk = _ReservingDisk(disk, self._ran_out) if reserve.size_bytes else disk

    @property
    def is_short(self) -> bool:
        return self.why_short is not None

    def takes(self, size: int) -> bool:
        """Return whether to take entries of `size` bytes, of the leader or of this member's own.

        Counts them while the disk is short.
        """
        if self.why_short is None:
            return True
        if self._allowance_bytes < size:
            return False
        self._allowance_bytes -= size
        return True

    def has_room_beside(self, size: int) -> bool:
        """Return whether the disk would count as having room after writing a file of that size."""
        reserve = self._reserve.size_bytes
        return not reserve or (not self.is_short and self._free() >= size + ROOMY * reserve)

    def begin(self) -> None:
        """Give up the reserve if the disk is nearly full. Call this before opening any file."""
        if self._reserve.size_bytes and self._free() < self._reserve.size_bytes:
            self._is_short(self._little())

    def opened(self) -> None:
        """Take up the reserve if it is missing. Call this once the member's folder is open."""
        if self.is_short or not self._reserve.size_bytes:
            return
        try:
            self._reserve.make()
        except OSError as error:
            logger.warning("going on without a reserve on the disk: %s", told(error))

    def look(self, now: float) -> bool:
        """Check whether room became short, or is there again; return whether that changed."""
        size = self._reserve.size_bytes
        if not size:
            return False
        if self.why_short is None:
            if self._free() >= size:
                return False
            self._is_short(self._little())
            return True
        if now < self._next_look_at:
            return False
        self._next_look_at = now + SHORT_LOOK_S
        try:
            missing = 0 if self._reserve.is_made else size
            if self._free() < missing + ROOMY * size:
                return False
            self._reserve.make()  # a quota shows only here
        except OSError:
            return False
        self.why_short = None
        logger.warning("there is room on the disk again: appends are taken")
        return True

    def _free(self) -> int:
        try:
            return self._free_bytes()
        except OSError:
            return 1 << 62  # free space is unknown: the first write that fails will show it

    def _little(self) -> str:
        return (
            f"less than {self._reserve.size_bytes / 2**20:g} MiB (reserve_bytes) are free on the "
            "disk: free some of it, or enlarge it"
        )

    def _ran_out(self, error: OSError, size: int) -> bool:
        """Note that a write of `size` bytes found no room, in any thread; return whether to try it
        again.

        Entries of more than half of the reserve are not tried again: a leader refuses them, and the
        reserve is left for records and small entries.
        """
        was_short = self.is_short
        self._is_short(told(error))
        return size <= RECORD_BYTES or (not was_short and self.takes(size))

    def _is_short(self, why: str) -> None:
        gave = self._reserve.give_up()
        if self.why_short is None:
            self._allowance_bytes = self._reserve.size_bytes // 2
            self.why_short = why
            logger.error(
                "%s. Until then no append is taken%s",
                *(why, "; the reserve on the disk is given up" if gave else ""),
            )
            self.on_short()


def unwatched_room(disk: Disk) -> DiskRoom:
    """Return the room of a member without a reserve, which is never short."""
    return DiskRoom(disk, Reserve(disk, "", 0), lambda: 0)
