"""The folder of one log, seen from outside: its files, and what may be read of it.

Reads only, and takes no lock: a node may be running in the folder. What is committed does not
change any more, except that retention removes whole files from the front.
The format is that of dledger/store (Java DLedger's, and our hard-state record).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from typing import Final

from dledger.store.hard_state_file import FILE_BYTES, FILE_NAME, StoreRecord, newest_record
from dledger.store.segment import start_of
from dledger_spark.entry_columns import BLANK_BYTES, HEADER_BYTES, MAX_ENTRY_BYTES
from dledger_spark.errors import LogDamaged, LogFolderInvalid, SegmentGone

_NODE_PREFIX: Final = "dledger-"
_BLANK: Final = struct.Struct(">ii")
_BLANK_MAGIC: Final = -1
HEADER_FIELDS: Final = struct.Struct(">iiqqqiIIi")
_ALL_UNCHECKED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Segment:
    """One data file that holds entries.

    Attributes:
        path: where it is.
        start: position of its first byte in the log.
        size: its length in bytes.
        first_index: its first entry.
        first_pos: position of that entry (behind a blank in a log whose head was cut).
    """

    path: str
    start: int
    size: int
    first_index: int
    first_pos: int

    @property
    def limit(self) -> int:
        """Position that no entry reaches over: eight bytes stay for the closing blank."""
        return self.start + self.size - BLANK_BYTES


@dataclass(frozen=True, slots=True)
class LogFolder:
    """One log at one moment.

    Attributes:
        path: the node's folder, `.../dledger-<id>` by convention.
        group: the group of the node; None in a folder of Java's.
        segments: the files that hold entries, in order.
        first_index: the first entry kept.
        committed: entries up to here are committed; -1 for none, None if it is not recorded.
        unchecked_through: the sums of entries up to here mean nothing.
        before_begin_chain: chain sum of the entry before the first one kept; None if unknown.
    """

    path: str
    group: str | None
    segments: tuple[Segment, ...]
    first_index: int
    committed: int | None
    unchecked_through: int
    before_begin_chain: int | None

    @property
    def index_path(self) -> str:
        """The folder of the index files."""
        return f"{self.path}/index"

    def last_in(self, at: int, last: int) -> int:
        """The last entry of segment number `at`, if the log ends with entry `last`."""
        if at + 1 < len(self.segments):
            return min(last, self.segments[at + 1].first_index - 1)
        return last


def open_log(path: str) -> LogFolder:
    """Look at a log: the node's folder, or a folder that holds exactly one node's.

    Raises:
        LogFolderInvalid: there is no log, or there are several.
        LogDamaged: its files do not fit together.
    """
    folder = _node_folder(os.path.abspath(path))
    while True:
        record = _read_record(folder)
        try:
            return _look(folder, record)
        except (LogDamaged, SegmentGone):
            # Retention may have removed files while we looked, maybe not the first ones first.
            now = _read_record(folder)
            if record is None or now is None or now.begin_pos <= record.begin_pos:
                raise


def _look(folder: str, record: StoreRecord | None) -> LogFolder:
    data = f"{folder}/data"
    sizes = _file_sizes(data)
    if not sizes and record is None:
        raise LogFolderInvalid(folder, "its data folder holds no log file: point at a node's log")
    segment_bytes = record.segment_bytes if record else max(sizes.values(), default=0)
    begin_pos = record.begin_pos if record else 0
    segments = _segments(data, sizes, segment_bytes, begin_pos)
    first_index = record.before_begin + 1 if record else 0
    if segments:
        first_index = max(first_index, segments[0].first_index)
    return LogFolder(
        path=folder,
        group=record.group if record else None,
        segments=segments,
        first_index=first_index,
        committed=record.committed if record else None,
        unchecked_through=record.unchecked_through if record else _ALL_UNCHECKED,
        before_begin_chain=_chain_before_begin(record, first_index),
    )


def _chain_before_begin(record: StoreRecord | None, first_index: int) -> int | None:
    if first_index == 0:
        return 0
    if record is None or record.before_begin + 1 != first_index:
        return None
    return record.before_begin_chain or None


def open_file(path: str) -> OpenFile:
    """A file of the log, for reading. Raises SegmentGone when it is not there any more."""
    try:
        return OpenFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise SegmentGone(path) from None


class OpenFile:
    """A descriptor that closes with its block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)


def _node_folder(path: str) -> str:
    if not os.path.isdir(path):
        problem = "is a file" if os.path.exists(path) else "does not exist"
        raise LogFolderInvalid(path, f"{problem}: point at the folder of a node's log")
    if os.path.isdir(f"{path}/data"):
        return path
    found = sorted(
        name
        for name in os.listdir(path)
        if name.startswith(_NODE_PREFIX) and os.path.isdir(f"{path}/{name}/data")
    )
    if len(found) > 1:
        raise LogFolderInvalid(path, f"holds the logs of several nodes: add one of {found}")
    if not found:
        raise LogFolderInvalid(
            path, f"holds no log: neither data/ nor one {_NODE_PREFIX}<id>/data/ is in it"
        )
    return f"{path}/{found[0]}"


def _read_record(folder: str) -> StoreRecord | None:
    path = f"{folder}/{FILE_NAME}"
    if not os.path.exists(path):
        return None
    with open_file(path) as file:
        newest = newest_record(os.pread(file.fileno(), FILE_BYTES, 0))
    if newest is None:
        raise LogDamaged(path, 0, "neither slot holds a whole record")
    return newest[0]


def _file_sizes(folder: str) -> dict[int, int]:
    """Lengths of the segment files by their starts."""
    sizes = {}
    for entry in os.scandir(folder):
        start = start_of(entry.name)
        if start is not None:
            try:
                sizes[start] = entry.stat().st_size
            except FileNotFoundError:
                continue  # retention took it between the listing and the look
    return dict(sorted(sizes.items()))


def _segments(
    folder: str, sizes: dict[int, int], segment_bytes: int, begin_pos: int
) -> tuple[Segment, ...]:
    """The files with entries, up to the first that holds none."""
    segments: list[Segment] = []
    for start, listed in sizes.items():
        size = listed
        if start + segment_bytes <= begin_pos:
            continue  # cut off, and about to be removed
        path = f"{folder}/{start:020d}"
        if segments and start != segments[-1].start + segment_bytes:
            missing = f"{folder}/{segments[-1].start + segment_bytes:020d}"
            raise LogDamaged(missing, 0, "the file is missing between two others")
        segment = _first_entry(path, start, size, max(start, begin_pos), not segments)
        if segment is None:
            break
        if size != segment_bytes:  # it may have been in the making when it was looked at
            with open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
        if size != segment_bytes:
            problem = f"the file is {size} bytes long, the files of this log have {segment_bytes}"
            raise LogDamaged(path, min(size, segment_bytes), problem)
        segments.append(replace(segment, size=size))
    return tuple(segments)


def _first_entry(path: str, start: int, size: int, pos: int, is_first: bool) -> Segment | None:
    """The segment with its first entry; None when no entry begins it."""
    with open_file(path) as file:
        content = os.pread(file.fileno(), HEADER_BYTES, pos - start)
        if is_first and len(content) >= BLANK_BYTES:
            magic, blank = _BLANK.unpack_from(content)
            if magic == _BLANK_MAGIC and BLANK_BYTES <= blank < size:
                pos += blank
                content = os.pread(file.fileno(), HEADER_BYTES, pos - start)
    if len(content) < HEADER_BYTES:
        return None
    magic, length, index, _term, entry_pos, _, _, _, body = HEADER_FIELDS.unpack(content)
    if not may_be_entry(magic, length, body, entry_pos == pos) or index < 0:
        return None
    return Segment(path, start, size, index, pos)


def may_be_entry(magic: int, size: int, body: int, in_place: bool) -> bool:
    """Whether a header's fields can belong to an entry at all."""
    return (
        1 <= magic <= 3
        and in_place
        and size == HEADER_BYTES + body
        and HEADER_BYTES <= size <= MAX_ENTRY_BYTES
    )
