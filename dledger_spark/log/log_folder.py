"""The folder of one log: its files, and the entries that may be read.

Nothing is written or locked: a node may be running in the folder. Committed entries never change,
except that retention removes whole files from the front. The format is that of dledger/store (Java
DLedger's, and our hard-state record).
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from dledger.store.hard_state_file import FILE_BYTES, FILE_NAME, StoreRecord, newest_record
from dledger.store.segment import start_of
from dledger_spark.entries.entry_columns import BLANK_BYTES, HEADER_BYTES, MAX_ENTRY_BYTES
from dledger_spark.errors import LogDamaged, LogFolderInvalid, SegmentGone
from dledger_spark.local_path import local_path, require_folder

NODE_PREFIX: Final = "dledger-"
_BLANK: Final = struct.Struct(">ii")
_BLANK_MAGIC: Final = -1
HEADER_FIELDS: Final = struct.Struct(">iiqqqiIIi")
_NO_TERM: Final = -1  # in the hard-state record
_ALL_UNCHECKED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Segment:
    """One data file that holds entries.

    Attributes:
        start: position of its first byte in the log.
        size: its length in bytes, when it is complete.
        first_pos: position of its first entry (behind a blank in a log whose head was cut).
    """

    path: str
    start: int
    size: int
    first_index: int
    first_pos: int

    @property
    def limit(self) -> int:
        """The position before which all entries end: eight bytes stay free for the closing
        blank.
        """
        return self.start + self.size - BLANK_BYTES


@dataclass(frozen=True, slots=True)
class LogFolder:
    """One log at one moment.

    Attributes:
        path: the node's folder, `.../dledger-<id>` by convention.
        group: the group of the node; None in a folder of Java's.
        segments: the files that hold entries, in order. A file that is missing or does not begin
            with an entry is left out; see `log_range.gaps_in`.
        segment_bytes: length of a complete file.
        first_index: the first entry kept, whether a file holds it or not.
        committed: the last committed entry; -1 for none, None if it is not recorded.
        unchecked_through: the last entry that Java wrote, whose sums are not checked.
        before_begin_term: term of the entry before the first one kept; None if unknown.
        before_begin_chain: its chain sum; None if unknown, 0 if there is no such entry.
    """

    path: str
    group: str | None
    segments: tuple[Segment, ...]
    segment_bytes: int
    first_index: int
    committed: int | None
    unchecked_through: int
    before_begin_term: int | None
    before_begin_chain: int | None

    @property
    def index_path(self) -> str:
        return f"{self.path}/index"

    def last_in(self, at: int, last: int) -> int:
        """Return the last entry before the segment after number `at`; `last` if there is none."""
        if at + 1 < len(self.segments):
            return min(last, self.segments[at + 1].first_index - 1)
        return last

    def is_followed(self, at: int) -> bool:
        """Return whether the next file after segment number `at` exists, or is not needed."""
        behind = self.segments[at + 1 : at + 2]
        return not behind or behind[0].start == self.segments[at].start + self.segment_bytes

    @property
    def has_gaps(self) -> bool:
        """Whether a file is missing before another one, or does not begin with an entry."""
        return bool(self.segments) and (
            self.segments[0].first_index > self.first_index
            or not all(map(self.is_followed, range(len(self.segments))))
        )


def open_log(path: str) -> LogFolder:
    """Open a log for reading: the node's folder, or a folder that holds exactly one node's.

    Raises:
        LogFolderInvalid: there is no log, or there are several.
        LogDamaged: its hard-state record cannot be read.
    """
    folder = _node_folder(local_path("path", path))
    while True:
        record = read_record(folder)
        # Retention may remove files meanwhile, in any order.
        try:
            log = _look(folder, record)
        except SegmentGone:
            if not _begins_later(folder, record):
                raise
        else:
            if not log.has_gaps or not _begins_later(folder, record):
                return log


def _begins_later(folder: str, record: StoreRecord | None) -> bool:
    now = read_record(folder)
    return record is not None and now is not None and now.begin_pos > record.begin_pos


def _look(folder: str, record: StoreRecord | None) -> LogFolder:
    data = f"{folder}/data"
    sizes = _file_sizes(data)
    if not sizes and record is None:
        raise LogFolderInvalid(folder, "its data folder holds no log file: point at a node's log")
    segment_bytes = record.segment_bytes if record else max(sizes.values(), default=0)
    begin_pos = record.begin_pos if record else 0
    segments = _segments(data, sizes, segment_bytes, begin_pos)
    # Java removes files without a record of it: then the log begins with the first file there is.
    found = segments[0].first_index if segments else 0
    first_index = record.before_begin + 1 if record else found
    return LogFolder(
        path=folder,
        group=record.group if record else None,
        segments=segments,
        segment_bytes=segment_bytes,
        first_index=first_index,
        committed=record.committed if record else None,
        unchecked_through=record.unchecked_through if record else _ALL_UNCHECKED,
        before_begin_term=_known(record.before_begin_term, _NO_TERM) if record else None,
        before_begin_chain=_chain_before_begin(record, first_index),
    )


def _chain_before_begin(record: StoreRecord | None, first_index: int) -> int | None:
    if first_index == 0:
        return 0
    return _known(record.before_begin_chain, 0) if record else None


def _known(value: int, unknown: int) -> int | None:
    return None if value == unknown else value


@contextmanager
def open_file(path: str) -> Iterator[int]:
    """Open a file of the log for reading. Raises SegmentGone if it no longer exists."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SegmentGone(path) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _node_folder(path: str) -> str:
    require_folder(path, "point at the folder of a node's log")
    if os.path.isdir(f"{path}/data"):
        return path
    found = sorted(
        name
        for name in os.listdir(path)
        if name.startswith(NODE_PREFIX) and os.path.isdir(f"{path}/{name}/data")
    )
    if len(found) > 1:
        raise LogFolderInvalid(path, f"holds the logs of several nodes: add one of {found}")
    if not found:
        raise LogFolderInvalid(
            path, f"holds no log: neither data/ nor one {NODE_PREFIX}<id>/data/ is in it"
        )
    return f"{path}/{found[0]}"


def read_record(folder: str) -> StoreRecord | None:
    """Return the hard-state record of a node's folder; None in a folder of Java's.

    Raises:
        LogDamaged: it cannot be read.
    """
    path = f"{folder}/{FILE_NAME}"
    if not os.path.exists(path):
        return None
    with open_file(path) as file:
        newest = newest_record(os.pread(file, FILE_BYTES, 0))
    if newest is None:
        raise LogDamaged(path, 0, "neither slot holds a whole record")
    return newest[0]


def _file_sizes(folder: str) -> dict[int, int]:
    sizes = {}
    for entry in os.scandir(folder):
        start = start_of(entry.name)
        if start is not None:
            try:
                sizes[start] = entry.stat().st_size
            except FileNotFoundError:
                continue  # retention removed it after the listing
    return dict(sorted(sizes.items()))


def _segments(
    folder: str, sizes: dict[int, int], segment_bytes: int, begin_pos: int
) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for start, listed in sizes.items():
        if start + segment_bytes <= begin_pos:
            continue  # it is before the log's beginning, and about to be removed
        path = f"{folder}/{start:020d}"
        segment = _first_entry(path, start, listed, max(start, begin_pos), not segments)
        if segment is not None:
            segments.append(replace(segment, size=segment_bytes))
    return tuple(segments)


def _first_entry(path: str, start: int, size: int, pos: int, is_first: bool) -> Segment | None:
    """Return the segment with its first entry; None if it does not begin with one."""
    with open_file(path) as file:
        content = os.pread(file, HEADER_BYTES, pos - start)
        if is_first and len(content) >= BLANK_BYTES:
            magic, blank = _BLANK.unpack_from(content)
            if magic == _BLANK_MAGIC and BLANK_BYTES <= blank < size:
                pos += blank
                content = os.pread(file, HEADER_BYTES, pos - start)
    if len(content) < HEADER_BYTES:
        return None
    magic, length, index, _term, entry_pos, _, _, _, body = HEADER_FIELDS.unpack(content)
    if not may_be_entry(magic, length, body, entry_pos == pos) or index < 0:
        return None
    return Segment(path, start, size, index, pos)


def may_be_entry(magic: int, size: int, body: int, in_place: bool) -> bool:
    """Return whether these fields can be the header of an entry."""
    return (
        1 <= magic <= 3
        and in_place
        and size == HEADER_BYTES + body
        and HEADER_BYTES <= size <= MAX_ENTRY_BYTES
    )
