"""Repairs the log of a stopped node from the log of another member.

The files of all members hold the same bytes wherever their histories are equal, and equal chain
sums mean that all entries before are equal. So a broken stretch is replaced by the bytes at the
same place in another member's files, if their sums follow the intact entry before the stretch and
lead to the intact entry after it. If the damage reaches the log's end, there is no intact entry
after it: the log is then continued with all later entries of the other log, and the result says so.
Such a folder is marked before it is written to: its member does not vote or count until it is
proven.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from dledger.core.admission.standing import Standing
from dledger.errors import ConfigInvalid, DiskFailed, RepairFailed
from dledger.store.birth_file import BirthFile
from dledger.store.disk import Disk, OsDisk
from dledger.store.folder import DATA, INDEX, LOCK, find_files, open_data, open_index
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.recovery import intact_behind
from dledger.store.scan import StoreScan, scan_folder
from dledger.store.segment import SegmentFiles, file_name
from dledger.store.standing_file import StandingFile
from dledger.store.walk import WINDOW_BYTES, LogWalker, RawHeader, Stop

# The size of the first read at each step: a long stretch of damage is repaired in small steps.
_STEP_BYTES = 256 * 1024


class Repaired(NamedTuple):
    """One stretch that was replaced: its file and offset, its bytes, its entries.

    `certain` is False if the damage reached the log's end: the log was continued with the later
    entries of the other log, and entries that only the broken log held may be lost.
    """

    path: str
    offset: int
    size: int
    first_index: int
    last_index: int
    certain: bool


class _Stretch(NamedTuple):
    """How far to copy the other log: up to an entry that our log also holds, or to its end."""

    end: int
    next_index: int
    leads_back: bool


def repair_folder(target: str, source: str, disk: Disk | None = None) -> list[Repaired]:
    """Replace the broken entries of the log in `target` by those of the log in `source`.

    The repair is durable on return. Index units that contradict the entries are written anew. A
    torn write at the log's end is left to recovery.

    Raises:
        ConfigInvalid: the folders do not belong to two members of one group.
        DataFolderLocked: a node runs on `target`.
        RepairFailed: the other log does not hold the broken entries either, or nothing proves
            that its entries are the same ones.
        BeginningDropped: `source` is in use, and lost files meanwhile: try again.
        DiskFailed: `target` could not be written.
        OSError: `source` could not be read.
    """
    disk = disk or OsDisk()
    broken, copy = scan_folder(target, disk), scan_folder(source, disk)
    _check_pair(disk, broken, copy)
    with contextlib.ExitStack() as stack:
        stack.callback(disk.lock(f"{broken.folder}/{LOCK}").close)
        try:
            return _mend(disk, broken, copy, stack)
        except OSError as cause:
            name = cause.filename if isinstance(cause.filename, str) else broken.folder
            if name.startswith(broken.folder):
                raise DiskFailed("repair", name, cause) from cause
            # The other member runs and dropped files. The repairs made so far are valid.
            raise copy.dropped() or cause from None


def _check_pair(disk: Disk, broken: StoreScan, copy: StoreScan) -> None:
    if broken.folder == copy.folder:
        raise ConfigInvalid("--from", f"{copy.folder} is the folder to be repaired")
    for scan in (broken, copy):
        if scan.record is None:
            problem = f"{scan.folder} has no record of term and vote: it cannot be compared"
            raise ConfigInvalid("folder", problem)
    ours, theirs = broken.record, copy.record
    if ours is not None and theirs is not None and ours.group != theirs.group:
        raise ConfigInvalid("--from", f"{copy.folder} belongs to group {theirs.group}")
    births = [BirthFile(disk, scan.folder).record for scan in (broken, copy)]
    if len({record.birth for record in births if record is not None and record.birth}) > 1:
        problem = f"{copy.folder} belongs to a group of the same name that began separately"
        raise ConfigInvalid("--from", problem)
    if broken.segment_bytes != copy.segment_bytes:
        raise ConfigInvalid("--from", f"its segments have {copy.segment_bytes} bytes, not ours")


def _mend(
    disk: Disk, broken: StoreScan, copy: StoreScan, stack: contextlib.ExitStack
) -> list[Repaired]:
    data_folder, index_folder = f"{broken.folder}/{DATA}", f"{broken.folder}/{INDEX}"
    copy_folder = f"{copy.folder}/{DATA}"
    _replace_missing_files(disk, broken, data_folder)
    segment_bytes = broken.segment_bytes
    data = open_data(disk, data_folder, segment_bytes, find_files(disk, data_folder))
    stack.callback(data.close)
    starts = [segment.start for segment in copy.segments]
    source = SegmentFiles(disk, copy_folder, segment_bytes, starts, writable=False)
    stack.callback(source.close)
    found = find_files(disk, index_folder)
    index = open_index(disk, index_folder, found.segment_bytes or UNIT_BYTES, found)
    stack.callback(index.close)
    standing = StandingFile(disk, broken.folder)
    committed = max(broken.committed, copy.committed)
    repair = _Repair(data, source, index, committed, lambda: standing.set(Standing.LOST))
    repair.run(broken.walker(check_sums=True), broken.log_begin())
    data.sync_dirty()
    index.sync_dirty()
    return repair.repaired


def _replace_missing_files(disk: Disk, broken: StoreScan, folder: str) -> None:
    """Create files of zeros in place of files missing between others."""
    starts = [segment.start for segment in broken.segments]
    if not starts:
        raise ConfigInvalid("folder", f"{folder} holds no log to be repaired")
    for start in range(starts[0], starts[-1], broken.segment_bytes):
        if start not in starts:
            with contextlib.closing(disk.create(f"{folder}/{file_name(start)}")) as file:
                file.grow(broken.segment_bytes)
                file.sync()
    disk.sync_folder(folder)


class _Repair:
    """A repair on one walk through the broken log."""

    def __init__(
        self,
        data: SegmentFiles,
        source: SegmentFiles,
        index: SegmentFiles,
        committed: int,
        doubt: Callable[[], None],
    ) -> None:
        self.repaired: list[Repaired] = []
        self._data = data
        self._source = source
        self._index = index
        self._committed = committed
        self._doubt = doubt

    def run(self, walker: LogWalker, pos: int) -> None:
        size = _STEP_BYTES
        while pos < self._data.end or (walker.next_index or 0) <= self._committed:
            headers = walker.walk(self._window(self._data, size, pos), pos)
            self._write_index(headers)
            pos = walker.pos
            if walker.stop is Stop.SEGMENT_END:
                pos += walker.segment_bytes - pos % walker.segment_bytes
            elif headers:
                size = _STEP_BYTES
            elif walker.stop is Stop.MORE and size < WINDOW_BYTES:
                size = WINDOW_BYTES
            elif not self._replace(walker, pos):
                return

    def _replace(self, ours: LogWalker, pos: int) -> bool:
        """Replace the broken stretch at `pos`; False if the log may simply end there."""
        data, first = self._data, ours.next_index or 0
        found = self._compare(ours, pos)
        if found.leads_back or (found.end > pos and first <= self._committed):
            if not found.leads_back and intact_behind(data, pos, first, ours.term):
                problem = "the other log does not lead to the intact entries after the damage"
                raise RepairFailed(data.path(pos), first, problem)
            if not found.leads_back:
                self._doubt()
            self._copy(pos, found.end)
            path, offset = data.path(pos), pos % data.segment_bytes
            size, last = found.end - pos, found.next_index - 1
            self.repaired.append(Repaired(path, offset, size, first, last, found.leads_back))
            return True
        if first <= self._committed:
            problem = f"the other log does not hold entry {first} either"
            raise RepairFailed(data.path(pos), first, problem)
        return False

    def _compare(self, ours: LogWalker, pos: int) -> _Stretch:
        """Walk the other log from `pos` until it equals ours again, or to its end."""
        size = ours.segment_bytes
        walker = LogWalker(size, next_index=ours.next_index, term=ours.term, chain=ours.chain)
        begin = pos
        while True:
            theirs = self._window(self._source, WINDOW_BYTES, pos)
            mine = self._window(self._data, len(theirs), pos)
            headers = walker.walk(theirs, pos)
            for header in headers:
                at = header[4] - pos
                if header[4] > begin and mine[at : at + header[1]] == theirs[at : at + header[1]]:
                    return _Stretch(header[4], header[2], leads_back=True)
            pos = walker.pos
            if walker.stop is Stop.SEGMENT_END:
                pos += size - pos % size
            elif walker.stop is not Stop.MORE or not headers:
                return _Stretch(walker.pos, walker.next_index or 0, leads_back=False)

    def _copy(self, pos: int, end: int) -> None:
        while pos < end:
            piece = self._window(self._source, min(WINDOW_BYTES, end - pos), pos)
            self._data.write(piece, pos)
            pos += len(piece)

    @staticmethod
    def _window(files: SegmentFiles, size: int, pos: int) -> bytes:
        """Read the bytes at `pos`, up to the end of their file; empty if there is no file."""
        if not files.begin <= pos < files.end:
            return b""
        return files.read(min(size, files.segment_bytes - pos % files.segment_bytes), pos)

    def _write_index(self, headers: list[RawHeader]) -> None:
        """Write the index units of these entries where they differ."""
        if not headers:
            return
        index, pos = self._index, headers[0][2] * UNIT_BYTES
        units = b"".join([UNIT.pack(h[0], h[4], h[1], h[2], h[3]) for h in headers])
        if index.begin <= pos < index.end and index.read(len(units), pos) != units:
            index.write(units, pos)
