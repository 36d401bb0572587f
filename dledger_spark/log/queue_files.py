"""The files of a broker's consume queues: the places of the messages of each queue.

They are in the folder `consumequeue` beside that of the log, in RocketMQ's format: for each message
its place in the log, its size and the hash of its tag, in 20 bytes. The broker makes them from the
log and writes them late; `.synced` has the place of the log before which the files are whole (see
"Consume queues" in docs/broker.md).

A reader may use them to find records, never to decide whether there are any: a file may be missing,
or have leftovers at its end. Files that cannot be read are ignored, because the log has all of it.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker.topics.names import is_legal_name
from dledger.store.segment import start_of
from dledger_spark.entries.entry_columns import Positions
from dledger_spark.errors import SegmentGone
from dledger_spark.log.log_folder import open_file
from dledger_spark.log.queued_entries import QueueUnits

_FOLDER: Final = "consumequeue"
_MARK: Final = ".synced"
_MARK_FIELDS: Final = struct.Struct(">qI")
_POSITION: Final = struct.Struct(">q")
_QUEUE_NAME: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_QUEUE: Final = 2**31 - 1
_UNIT: Final = np.dtype([("place", ">i8"), ("size", ">i4"), ("code", ">i8")])

# The begin of a range is searched in each queue, which takes 30 us. With more queues, reading the
# log is as fast.
MAX_QUEUES: Final = 4096
# The units in memory, of all queues together: 20 MiB of files.
_HELD_UNITS: Final = 1024 * 1024
# The most units of one read: 160 KiB of a file.
_MAX_READ_UNITS: Final = 8192
# The cached listings of folders; a query plans one range of a log after another.
_KEPT_LISTINGS: Final = 8


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """The names of a broker's topics, and the files of its queues."""

    topics: tuple[str, ...]
    queues: tuple[_Queue, ...]


@dataclass(frozen=True, slots=True)
class _Queue:
    """The files of one queue: the start of each in bytes of the queue, and its length."""

    folder: str
    topic: int
    queue: int
    files: tuple[tuple[int, int], ...]


def whole_before(log_folder: str) -> int:
    """Return the place of the log before which the queues beside it are whole; -1 if unknown."""
    try:
        with open_file(f"{_beside(log_folder)}/{_MARK}") as file:
            content = os.pread(file, _MARK_FIELDS.size, 0)
    except (OSError, SegmentGone):
        return -1
    if len(content) < _MARK_FIELDS.size:
        return -1
    position, stored = _MARK_FIELDS.unpack(content)
    return int(position) if stored == zlib.crc32(content[: _POSITION.size]) else -1


def queue_folder(log_folder: str, whole_before: int) -> QueueFolder | None:
    """Return the queues beside a log; None if they cannot be listed, or are too many to be of
    use.
    """
    return _listed(_beside(log_folder), whole_before)


def _beside(log_folder: str) -> str:
    return f"{os.path.dirname(log_folder)}/{_FOLDER}"


@lru_cache(_KEPT_LISTINGS)
def _listed(folder: str, _whole_before: int) -> QueueFolder | None:
    """List the queues, once for each mark: later queues have no message before its place."""
    topics: list[str] = []
    queues: list[_Queue] = []
    try:
        for topic in sorted(os.listdir(folder)):
            if not is_legal_name(topic):
                continue
            for name in os.listdir(f"{folder}/{topic}"):
                if not _QUEUE_NAME.fullmatch(name) or int(name) > _LAST_QUEUE:
                    continue
                path = f"{folder}/{topic}/{name}"
                queues.append(_Queue(path, len(topics), int(name), _files(path)))
                if len(queues) > MAX_QUEUES:
                    return None
            topics.append(topic)
    except OSError:
        return None
    return QueueFolder(tuple(topics), tuple(queues))


def _files(folder: str) -> tuple[tuple[int, int], ...]:
    """Return the files of a queue up to the last one, from the last gap on."""
    sizes: dict[int, int] = {}
    with os.scandir(folder) as found:
        for entry in found:
            start = start_of(entry.name)
            if start is not None and start % _UNIT.itemsize == 0:
                sizes[start] = entry.stat().st_size // _UNIT.itemsize * _UNIT.itemsize
    files: list[tuple[int, int]] = []
    for start in sorted(sizes, reverse=True):
        if files and start + sizes[start] != files[-1][0]:
            break
        files.append((start, sizes[start]))
    return tuple(reversed(files))


class QueueCursors:
    """Goes through all queues at once, in the order of the log, from a place on."""

    def __init__(self, folder: QueueFolder, place: int) -> None:
        room = _HELD_UNITS // max(1, len(folder.queues))
        read_units = min(_MAX_READ_UNITS, room)
        cursors = [_Cursor(queue, read_units) for queue in folder.queues]
        # Ordered by the place of the next message of each.
        self._waiting = [
            (cursor.next_place, number, cursor)
            for number, cursor in enumerate(cursors)
            if cursor.seek(place)
        ]
        heapify(self._waiting)

    def take_before(self, place: int) -> list[QueueUnits]:
        """Return the next messages that lie before a place of the log."""
        found: list[QueueUnits] = []
        while self._waiting and self._waiting[0][0] < place:
            _, number, cursor = heappop(self._waiting)
            found.append(cursor.take_before(place))
            if cursor.has_more:
                heappush(self._waiting, (cursor.next_place, number, cursor))
        return found


class _Cursor:
    """A position in one queue.

    Attributes:
        has_more: whether a message follows.
        next_place: its place in the log.
    """

    def __init__(self, queue: _Queue, read_units: int) -> None:
        self._queue = queue
        self._read_units = read_units
        self._offset = 0
        self._held = np.empty(0, _UNIT)
        self._places: Positions = np.empty(0, np.int64)
        self.has_more = False
        self.next_place = -1

    def seek(self, place: int) -> bool:
        """Go to the first message at a place of the log or behind; return whether there is one."""
        files = self._queue.files
        if not files:
            return False
        offsets = range(files[0][0] // _UNIT.itemsize, sum(files[-1]) // _UNIT.itemsize)
        # The files of a topic that was made again have zeros before its first message.
        self._offset = offsets.start + bisect_left(offsets, max(place, 1), key=self._place_at)
        self._fill(-1)
        return self.has_more

    def take_before(self, place: int) -> QueueUnits:
        """Return held messages that lie before a place. `next_place` must."""
        count = int(np.searchsorted(self._places, place))
        queue = self._queue
        units = QueueUnits(
            queue.topic,
            queue.queue,
            self._offset,
            self._places[:count],
            self._held["size"][:count].astype(np.int64),
        )
        last = int(self._places[count - 1])
        self._offset += count
        self._held, self._places = self._held[count:], self._places[count:]
        if len(self._places):
            self.next_place = int(self._places[0])
        else:
            self._fill(last)
        return units

    def _fill(self, last: int) -> None:
        """Read the next units. Places rise in a queue: units where they do not are leftovers."""
        self._held = self._read(self._offset, self._read_units)
        places = self._held["place"].astype(np.int64)
        rising = np.diff(places, prepend=last) > 0
        count = len(places) if rising.all() else int(rising.argmin())
        self._held, self._places = self._held[:count], places[:count]
        self.has_more = count > 0
        self.next_place = int(places[0]) if count else -1

    def _place_at(self, offset: int) -> int:
        """Return the place of a message; the greatest number if it cannot be read."""
        unit = self._read(offset, 1)
        return int(unit["place"][0]) if len(unit) else 2**63 - 1

    def _read(self, offset: int, count: int) -> npt.NDArray[Any]:
        """Return units of the file that has the first of them; none at the end."""
        at = offset * _UNIT.itemsize
        for start, size in self._queue.files:
            if start <= at < start + size:
                wanted = min(count * _UNIT.itemsize, start + size - at)
                try:
                    with open_file(f"{self._queue.folder}/{start:020d}") as file:
                        content = os.pread(file, wanted, at - start)
                except (OSError, SegmentGone):
                    break
                return np.frombuffer(content, _UNIT, count=len(content) // _UNIT.itemsize)
        return np.empty(0, _UNIT)
