"""Reads the folder of a node from outside: no lock, no recovery, nothing written.

The log consists of the entries that recovery would keep: the intact entries from the first file on,
each checked against the one before. A node may write to the log during the scan; the scan then ends
at some entry of that moment. If the node drops the log's beginning meanwhile, the scan begins at
the new beginning, or raises `BeginningDropped` if it has yielded entries before.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from enum import Enum, auto
from typing import NamedTuple

from dledger.entry import BLANK_BYTES, Header
from dledger.errors import BeginningDropped, ConfigInvalid, HardStateLost, LogCorrupt
from dledger.store.disk import Disk, DiskFile, OsDisk
from dledger.store.folder import DATA, INDEX, FoundFiles, check_sizes, find_files
from dledger.store.hard_state_file import FILE_BYTES, StoreRecord, newest_record
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.segment import SegmentFiles, check_spacing, file_name, start_of
from dledger.store.walk import (
    ALL_UNCHECKED,
    WINDOW_BYTES,
    LogWalker,
    RawHeader,
    Stop,
    prefix_blank,
)

# The magic of the index unit is not compared: Java's leader writes 1 for every kind of entry.
_UNIT_WITHOUT_MAGIC = 4
# After so many passes the log drops its beginning faster than the scan reads it.
_MAX_PASSES = 10


class ProblemKind(Enum):
    """Kinds of problems in a folder."""

    FOREIGN_FILE = auto()
    FILE_MISSING = auto()
    FILE_LENGTH = auto()
    HARD_STATE = auto()
    BROKEN_RECORD = auto()
    COMMITTED_MISSING = auto()
    INDEX_UNIT = auto()


class Problem(NamedTuple):
    """One problem and its place. `entry` is the index of the affected entry, if any."""

    kind: ProblemKind
    path: str
    offset: int
    entry: int | None
    text: str


class SegmentFile(NamedTuple):
    """One data file: its first position, its path, its length in bytes."""

    start: int
    path: str
    size: int


class EntryPlace(NamedTuple):
    """An entry's header, the file that it lies in, and its offset there."""

    header: Header
    path: str
    offset: int


class HeaderRun(NamedTuple):
    """Headers (as tuples, in file order) of adjacent entries of one file."""

    segment: SegmentFile
    headers: list[RawHeader]


class StoreScan:
    """The content of one node's folder; made by `scan_folder`.

    Attributes:
        folder: the `dledger-<id>` folder.
        segments: the data files, in order.
        segment_bytes: their length, as found.
        record: the newest record of `hard-state`, None without one (Java has none).
        java: whether the folder is Java's, without `hard-state`: then no sums are checked.
        problems: the problems found so far. Walking the entries may add more.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.folder = folder
        self.problems: list[Problem] = []
        self._disk = disk
        self.record = self._read_record()
        self.java = HARD_STATE not in disk.list(folder)
        self.segment_bytes = 0
        self.segments: list[SegmentFile] = []
        self._list_files()

    def _list_files(self) -> None:
        """Read the names of the files, and the record that says where the log begins."""
        data = f"{self.folder}/{DATA}"
        found = find_files(self._disk, data)
        while (again := self._read_record()) and self.record and again != self.record:
            if again.begin_pos == self.record.begin_pos:
                break
            # Files were removed meanwhile, perhaps not the first ones first.
            self.record = again
            found = find_files(self._disk, data)
        self.segment_bytes = self.record.segment_bytes if self.record else found.segment_bytes
        begin_pos = self.record.begin_pos if self.record else 0
        # Files that end before the recorded beginning are being removed: skip them.
        found = FoundFiles(
            {s: n for s, n in found.sizes.items() if s + self.segment_bytes > begin_pos}
        )
        self.segments = [
            SegmentFile(start, f"{data}/{file_name(start)}", size)
            for start, size in found.sizes.items()
        ]
        for name in sorted(self._disk.list(data)):
            if start_of(name) is None:
                self._note(ProblemKind.FOREIGN_FILE, f"{data}/{name}", 0, None, "not a log file")
        if self.segments:
            self._check_files(data, found.sizes)

    @property
    def committed(self) -> int:
        """A lower bound of the commit index; -1 if none is recorded."""
        return self.record.committed if self.record else -1

    def runs(self, *, check_sums: bool = True) -> Iterator[HeaderRun]:
        """Yield the log's headers, many at a time, from the first entry kept.

        Without `check_sums` bodies are not read (about 1 us an entry). Raises BeginningDropped if
        retention has overtaken the scan.
        """
        while not (yield from self._listed_runs(check_sums)):
            self._list_files()

    def _listed_runs(self, check_sums: bool) -> Generator[HeaderRun, None, bool]:
        """Yield the runs of the listed files; return False, yielding none, if the first is gone."""
        walker = self.walker(check_sums=check_sums)
        stop = Stop.SEGMENT_END
        expected = self.segments[0].start if self.segments else 0
        for segment in self.segments:
            if stop is not Stop.SEGMENT_END or segment.start != expected:
                break
            expected += self.segment_bytes
            try:
                file = self._disk.open(segment.path, writable=False)
            except FileNotFoundError:
                if (dropped := self.dropped()) is None:
                    raise
                if segment is self.segments[0]:
                    return False
                raise dropped from None
            try:
                yield from self._segment_runs(file, segment, walker)
            finally:
                file.close()
            stop = walker.stop
        self._note_end(walker, stop)
        return True

    def dropped(self) -> BeginningDropped | None:
        """Return the error to raise if the log has dropped files since the scan began."""
        now = self._read_record()
        if now is None or self.record is None or now.begin_pos <= self.record.begin_pos:
            return None
        return BeginningDropped(self.folder, now.before_begin + 1)

    def entries(self, *, check_sums: bool = True) -> Iterator[EntryPlace]:
        """Yield every entry of the log: its header, the path of its file, its offset there."""
        make = Header._make
        for (start, path, _), found in self.runs(check_sums=check_sums):
            for raw in found:
                yield EntryPlace(make(raw), path, raw[4] - start)

    def verify(self) -> list[Problem]:
        """Walk the whole log with all sums, compare the index, and return all problems.

        Only the first wrong unit of the index is reported. A running or killed node may not have
        written the units behind the recorded commit index yet. If the log's beginning is dropped
        meanwhile, the check starts again from the new one; raises BeginningDropped if that happens
        too often.
        """
        passes = 1
        while True:
            failure = None
            try:
                self._find_problems()
            except (BeginningDropped, FileNotFoundError) as error:
                failure = error
            if failure is None and not self.problems:
                return self.problems
            if (dropped := self.dropped()) is None:
                if failure is not None:
                    raise failure
                return self.problems
            if passes == _MAX_PASSES:
                raise dropped
            # The problems found may only be that files were removed.
            passes += 1
            self.problems.clear()
            self._list_files()

    def _find_problems(self) -> None:
        """Make one pass of `verify`."""
        files = self._index_files()
        agrees = True
        try:
            for _, headers in self.runs():
                agrees = agrees and self._index_agrees(files, headers)
        finally:
            files.close()

    # --- files --------------------------------------------------------------------------------

    def _note(
        self, kind: ProblemKind, path: str, offset: int, entry: int | None, text: str
    ) -> None:
        problem = Problem(kind, path, offset, entry, text)
        if problem not in self.problems:  # a second walk finds the same problems
            self.problems.append(problem)

    def _read_record(self) -> StoreRecord | None:
        path = f"{self.folder}/{HARD_STATE}"
        if HARD_STATE not in self._disk.list(self.folder):
            return None
        with closing(self._disk.open(path, writable=False)) as file:
            newest = newest_record(file.read(FILE_BYTES, 0))
        if newest is None:
            self._note(ProblemKind.HARD_STATE, path, 0, None, str(HardStateLost(path)))
            return None
        return newest[0]

    def _check_files(self, data: str, sizes: dict[int, int]) -> None:
        try:
            check_spacing(data, list(sizes), self.segment_bytes or 1)
        except LogCorrupt as error:
            self._note(ProblemKind.FILE_MISSING, error.path, error.offset, None, error.problem)
        for start, size in sizes.items():
            try:
                check_sizes(data, {start: size}, max(sizes), self.segment_bytes)
            except LogCorrupt as error:
                self._note(ProblemKind.FILE_LENGTH, error.path, error.offset, None, error.problem)

    # --- the walk -----------------------------------------------------------------------------

    def walker(self, *, check_sums: bool) -> LogWalker:
        """Return a walker in the state before the first entry kept."""
        record = self.record
        unchecked = ALL_UNCHECKED
        if check_sums and not self.java:
            unchecked = record.unchecked_through if record else -1
        if record is None:
            return LogWalker(self.segment_bytes, unchecked_through=unchecked)
        first = record.before_begin + 1
        return LogWalker(
            self.segment_bytes,
            next_index=first,
            term=record.before_begin_term,
            chain=0 if first == 0 else record.before_begin_chain or None,
            unchecked_through=unchecked,
        )

    def _segment_runs(
        self, file: DiskFile, segment: SegmentFile, walker: LogWalker
    ) -> Iterator[HeaderRun]:
        pos, end = segment.start, segment.start + self.segment_bytes
        if segment is self.segments[0]:
            pos = self._begin_pos(file, segment)
        walker.pos, walker.stop = pos, Stop.SEGMENT_END
        while pos < end:
            want = min(WINDOW_BYTES, end - pos)
            # A file that is too short (a crash at its creation) counts as filled with zeros.
            window = file.read(want, pos - segment.start).ljust(want, b"\0")
            found = walker.walk(window, pos)
            if found:
                yield HeaderRun(segment, found)
            if walker.stop is not Stop.MORE or walker.pos == pos:
                return
            pos = walker.pos

    def log_begin(self) -> int:
        """Return the position of the first entry kept; 0 without files."""
        if not self.segments:
            return 0
        with closing(self._disk.open(self.segments[0].path, writable=False)) as file:
            return self._begin_pos(file, self.segments[0])

    def _begin_pos(self, file: DiskFile, segment: SegmentFile) -> int:
        pos = segment.start + prefix_blank(file.read(BLANK_BYTES, 0), self.segment_bytes)
        record = self.record
        if record is not None and pos < record.begin_pos < segment.start + self.segment_bytes:
            return record.begin_pos
        return pos

    def _note_end(self, walker: LogWalker, stop: Stop) -> None:
        """Note why the walk ended, unless it reached the log's end."""
        next_index = walker.next_index or 0
        if stop is Stop.BROKEN:
            start = walker.pos - walker.pos % self.segment_bytes
            self._note(
                ProblemKind.BROKEN_RECORD,
                f"{self.folder}/{DATA}/{file_name(start)}",
                walker.pos - start,
                next_index,
                walker.findings.problem,
            )
        if next_index <= self.committed:
            self._note(
                ProblemKind.COMMITTED_MISSING,
                f"{self.folder}/{HARD_STATE}",
                0,
                next_index,
                f"the log ends with entry {next_index - 1}, "
                f"but entry {self.committed} is recorded as committed",
            )

    def _index_files(self) -> SegmentFiles:
        """Open the index files; none of them if they do not fit together."""
        folder = f"{self.folder}/{INDEX}"
        found = find_files(self._disk, folder)
        size = found.segment_bytes or UNIT_BYTES
        first = self.record.before_begin + 1 if self.record else 0
        found = FoundFiles({s: n for s, n in found.sizes.items() if s + size > first * UNIT_BYTES})
        starts = list(found.sizes)
        try:
            check_spacing(folder, starts, size)
            check_sizes(folder, found.sizes, max(starts, default=0), size)
        except LogCorrupt as error:
            self._note(ProblemKind.FILE_MISSING, error.path, error.offset, None, error.problem)
            starts = []
        return SegmentFiles(self._disk, folder, size, starts, writable=False)

    def _index_agrees(self, files: SegmentFiles, headers: list[RawHeader]) -> bool:
        """Note the first unit of this run that contradicts the data."""
        pos = headers[0][2] * UNIT_BYTES
        wanted = [UNIT.pack(h[0], h[4], h[1], h[2], h[3]) for h in headers]
        found = b""
        if files.begin <= pos < files.end:
            found = files.read(len(wanted) * UNIT_BYTES, pos)
        if found == b"".join(wanted):
            return True
        for at, unit in enumerate(wanted):
            there = found[at * UNIT_BYTES : (at + 1) * UNIT_BYTES]
            is_late = not any(there) and self.record and headers[at][2] > self.record.committed
            if not is_late and there[_UNIT_WITHOUT_MAGIC:] != unit[_UNIT_WITHOUT_MAGIC:]:
                unit_pos = pos + at * UNIT_BYTES
                self._note(
                    ProblemKind.INDEX_UNIT,
                    files.path(unit_pos),
                    unit_pos % files.segment_bytes,
                    headers[at][2],
                    "the index unit does not match the entry",
                )
                return False
        return True


def scan_folder(path: str, disk: Disk | None = None) -> StoreScan:
    """Scan a node's folder: `path` is its `dledger-<id>` folder, or the one around it.

    Raises:
        ConfigInvalid: there is no log in it, or there are logs of several nodes.
        OSError: it cannot be read.
    """
    disk = disk or OsDisk()
    names = disk.list(path)
    if DATA in names:
        return StoreScan(disk, path)
    nodes = sorted(name for name in names if name.startswith("dledger-"))
    if len(nodes) == 1:
        return StoreScan(disk, f"{path}/{nodes[0]}")
    problem = f"{path} holds {', '.join(nodes)}: name one of them" if nodes else f"no log in {path}"
    raise ConfigInvalid("path", problem)
