"""A consistent copy of one member's folder, running or not: a snapshot and the committed log.

Committed entries never change, so the entries recorded as committed when the copy begins can be
read while the member appends more. The end of the log, which may still be replaced, is not copied.
The index is rebuilt from the entries, as at a start.

The copy is marked as one that lost promises: a member that is started on it neither votes nor
counts until a leader of its group has brought it up to date. To begin a group from it, see
`dledger.rescue.group_recovery`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from dledger.core.admission.standing import Standing
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import BeginningDropped, ConfigInvalid, DiskFailed, DLedgerError
from dledger.store.birth_file import BirthFile
from dledger.store.disk import Disk, OsDisk
from dledger.store.folder import DATA, INDEX, node_folder
from dledger.store.generation import NEVER_RECOVERED
from dledger.store.generation_file import GenerationFile
from dledger.store.hard_state_file import HardStateFile, StoreRecord, check_name
from dledger.store.open_store import open_store
from dledger.store.scan import StoreScan, scan_folder
from dledger.store.segment import file_name
from dledger.store.snapshot_folder import SNAPSHOTS, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.standing_file import StandingFile
from dledger.store.store_config import StoreConfig

# A running node may drop segments that are being copied: then the copy starts again.
ATTEMPTS = 3

# Folders in the copy; a failed attempt leaves them empty.
_PARTS = (DATA, INDEX, SNAPSHOTS)

_PIECE_BYTES = 4 * 1024 * 1024


class BackupFailed(DLedgerError):
    """The backup failed: there is no usable copy."""

    folder: str
    problem: str
    _template = "{folder}: {problem}"


@dataclass(frozen=True, slots=True)
class Backup:
    """The result of a backup. Indexes are -1 where there is nothing.

    Attributes:
        folder: the `dledger-<id>` folder that was made.
        group, node_id: the copied member's group, and its name in the copy.
        generation: of the group.
        first_index, last_index: the entries, all of them committed.
        last_term: of the last one.
        snapshot_index: the last entry in the snapshot.
        size: bytes of entries and snapshot.
    """

    folder: str
    group: str
    node_id: str
    generation: int
    first_index: int
    last_index: int
    last_term: int
    snapshot_index: int
    size: int


def back_up(
    source: str, target: str, node_id: str | None = None, disk: Disk | None = None
) -> Backup:
    """Copy the member of the folder `source` into a new folder in `target`.

    Every sum is checked, on the way and in the copy. With `node_id` the copy is of a member of that
    name.

    Raises:
        ConfigInvalid: there is no member's folder, or one in `target` already.
        BackupFailed: some of the committed entries cannot be read.
        DiskFailed: the copy could not be written.
    """
    disk = disk or OsDisk()
    if node_id is not None:
        check_name("node_id", node_id)  # before a folder of that name is made
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            return _attempt(disk, source, target, node_id)
        except FileNotFoundError as error:
            problem = f"{error.filename} was removed"
        except BeginningDropped:
            problem = "the beginning of its log was dropped"
    raise BackupFailed(source, f"{problem}, {ATTEMPTS} times in a row: try again")


def _attempt(disk: Disk, source: str, target: str, node_id: str | None) -> Backup:
    scan = scan_folder(source, disk)
    if scan.record is None:
        raise ConfigInvalid("FOLDER", f"{scan.folder} has no record of term and vote")
    folder = node_folder(target.rstrip("/") or "/", node_id or scan.record.node_id)
    if any(name not in _PARTS or disk.list(f"{folder}/{name}") for name in disk.list(folder)):
        raise ConfigInvalid("--to", f"{folder} is there already")
    copy = _Copy(disk, scan, scan.record, folder)
    try:
        return copy.run(node_id)
    except BaseException as error:
        copy.undo()
        if isinstance(error, OSError):
            name = error.filename if isinstance(error.filename, str) else folder
            # Retention may remove a file of the source: the next attempt reads what is left.
            in_source = name.startswith(scan.folder.rstrip("/") + "/")
            if not (in_source and isinstance(error, FileNotFoundError)):
                raise DiskFailed("back up", name, error) from error
        raise


class _Copy:
    """One attempt to copy a member's folder."""

    def __init__(self, disk: Disk, scan: StoreScan, record: StoreRecord, folder: str) -> None:
        self._disk = disk
        self._scan = scan
        self._record = record
        self._folder = folder
        self._made: list[str] = []
        self._size = 0

    def run(self, node_id: str | None) -> Backup:
        disk, record, folder = self._disk, self._record, self._folder
        end_pos = self._end_of_committed()
        for part in ("", *_PARTS):
            disk.make_folder(f"{folder}/{part}")
        StandingFile(disk, folder).set(Standing.LOST)  # first, so that half a copy is marked too
        self._made.append(f"{folder}/unproven")
        snapshot = self._copy_snapshot()
        self._copy_entries(end_pos)
        if (birth := BirthFile(disk, self._scan.folder).record) is not None:
            copied = BirthFile(disk, folder)
            copied.write(birth)
            self._made.append(copied.path)
        generation = GenerationFile(disk, self._scan.folder).generation
        if generation != NEVER_RECOVERED:
            GenerationFile(disk, folder).set(generation)
            self._made.append(f"{folder}/generation")
        record = record._replace(
            node_id=node_id or record.node_id, voted_for=None, scan_pos=0, scan_index=0
        )
        HardStateFile.create(disk, folder, record).close()
        self._made.append(f"{folder}/hard-state")
        self._make_index(record)
        last_index, last_term = self._verify(record)
        return Backup(
            folder=folder,
            group=record.group,
            node_id=record.node_id,
            generation=generation.number,
            first_index=record.before_begin + 1,
            last_index=last_index,
            last_term=last_term,
            snapshot_index=BEFORE_FIRST_INDEX if snapshot is None else snapshot.index,
            size=self._size,
        )

    def undo(self) -> None:
        """Remove the copied files; the folders stay, empty."""
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                self._disk.remove(path)

    def _end_of_committed(self) -> int:
        """Return the end of the last entry recorded as committed; check all sums up to there.

        Raises BackupFailed.
        """
        committed, end_pos = self._record.committed, self._record.begin_pos
        last = self._record.before_begin
        for run in self._scan.runs():
            for header in run.headers:
                if header[2] > committed:
                    return end_pos
                last, end_pos = header[2], header[4] + header[1]
        if last < committed:
            problem = f"its log is broken after entry {last}: take another member's folder"
            raise BackupFailed(self._scan.folder, problem)
        return end_pos

    def _copy_entries(self, end_pos: int) -> None:
        segment_bytes = self._record.segment_bytes
        for segment in self._scan.segments:
            if segment.start < max(end_pos, 1):
                target = f"{self._folder}/{DATA}/{file_name(segment.start)}"
                self._copy_file(segment.path, target, end_pos - segment.start, segment_bytes)
        self._disk.sync_folder(f"{self._folder}/{DATA}")

    def _copy_snapshot(self) -> SnapshotHeader | None:
        """Copy the newest snapshot that the copied log reaches."""
        committed, group = self._record.committed, self._record.group

        def judge(header: SnapshotHeader) -> str | None:
            fits = header.group == group and header.index <= committed
            return None if fits else "it is not of the committed log"

        source = SnapshotFolder(self._disk, self._scan.folder)
        newest = source.find_newest(judge).newest
        if newest is None:
            return None
        target = SnapshotFolder(self._disk, self._folder)
        self._copy_file(newest.path, target.file(newest.header.index), newest.size, newest.size)
        self._disk.sync_folder(target.path)
        return newest.header

    def _make_index(self, record: StoreRecord) -> None:
        """Rebuild the index from the entries, as a start of the node would."""
        base = self._folder.rpartition("/")[0] or "/"
        open_store(self._disk, base, StoreConfig(), record.group, record.node_id).close()

    def _copy_file(self, source: str, target: str, size: int, length: int) -> None:
        """Copy the first `size` bytes; pad the file with zeros to `length`. Durable on return."""
        with contextlib.ExitStack() as stack:
            reader = self._disk.open(source, writable=False)
            stack.callback(reader.close)
            writer = self._disk.create(target)
            stack.callback(writer.close)
            self._made.append(target)
            at, size = 0, min(size, length)
            while at < size and (piece := reader.read(min(_PIECE_BYTES, size - at), at)):
                writer.write(piece, at)
                at += len(piece)
            writer.grow(length)
            writer.sync()
            self._size += at

    def _verify(self, record: StoreRecord) -> tuple[int, int]:
        """Check the copy; return the index and term of its last entry. Raises BackupFailed."""
        copy = scan_folder(self._folder, self._disk)
        last, term = record.before_begin, record.before_begin_term
        for run in copy.runs():
            last, term = run.headers[-1][2], run.headers[-1][3]
        problems = [problem.text for problem in copy.problems]
        problems += SnapshotFolder(self._disk, self._folder).problems()
        if last != record.committed:
            problems.append(f"the copy ends with entry {last}, not {record.committed}")
        if problems:
            raise BackupFailed(self._folder, problems[0])
        return last, term
