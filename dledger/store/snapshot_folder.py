"""The folder `snapshots` of a node: lists, writes and removes its snapshots.

A snapshot is written under another name, synced, renamed, and the folder is synced. So a name
that ends in `.snapshot` stands for a whole file after any crash; the sums reveal later damage by
the disk. The name is the index in 20 digits.

A process may stop between a rename and the sync of the folder. The next process sees the name, but
a power cut may still undo it. So the folder is synced when it is opened, before a name is relied
on, and a failed sync of the folder ends the node: DiskFailed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.errors import SnapshotCorrupt
from dledger.renamed import renamed_fields
from dledger.short_repr import short_repr
from dledger.store.disk import Disk, failing
from dledger.store.segment import NAME_DIGITS, start_of
from dledger.store.snapshot_file import SnapshotReader, SnapshotWriter
from dledger.store.snapshot_format import SnapshotHeader

SNAPSHOTS = "snapshots"
_SUFFIX = ".snapshot"
_NEW_SUFFIX = ".new"


@renamed_fields(size="size_bytes")
class Snapshot(NamedTuple):
    """One snapshot on disk: its header, its path, its length in bytes."""

    header: SnapshotHeader
    path: str
    size_bytes: int

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def group(self) -> NumberedConfiguration | None:
        """The group's configuration at that entry; None for the one that the group began with.

        Raises ConfigurationMalformed.
        """
        content = self.header.configuration
        return decode_configuration(content) if content else None


class Found(NamedTuple):
    """The newest usable snapshot, and the problems of newer ones."""

    newest: SnapshotReader | None
    problems: list[str]


class SnapshotFolder:
    """One node's snapshots. Made and used by one thread at a time; OSError passes through.

    Raises DiskFailed, which is terminal, when the names cannot be made durable.
    """

    def __init__(self, disk: Disk, node_folder: str) -> None:
        self.path = f"{node_folder}/{SNAPSHOTS}"
        self.disk = disk
        self._useless: set[int] = set()

    def open(self) -> None:
        """Create the folder, and remove the files whose writes were interrupted.

        All names are durable on return. The partial file of a snapshot that was being received
        stays: see IncomingSnapshot. Raises DiskFailed.
        """
        with failing("open", self.path):
            self.disk.make_folder(self.path)
            for name in self.disk.list(self.path):
                if name.endswith(_NEW_SUFFIX):
                    self.disk.remove(f"{self.path}/{name}")
        self._sync_names()

    def _sync_names(self) -> None:
        with failing("sync the names in", self.path):
            self.disk.sync_folder(self.path)

    def make_durable(self, reader: SnapshotReader) -> None:
        """Make the content and the name of a snapshot durable: an operator may have copied it here.

        Raises DiskFailed.
        """
        with failing("sync a snapshot in", self.path):
            reader.sync()
        self._sync_names()

    def indexes(self) -> list[int]:
        """Return the last index of each snapshot, newest first, without those found useless."""
        found = []
        for name in self.disk.list(self.path):
            if name.endswith(_SUFFIX):
                index = start_of(name[: -len(_SUFFIX)])
                if index is not None and index not in self._useless:
                    found.append(index)
        return sorted(found, reverse=True)

    def find_newest(self, judge: Callable[[SnapshotHeader], str | None]) -> Found:
        """Find the newest snapshot whose sums are all valid and that `judge` accepts.

        Newer ones count as useless from now on: `keep_newest` removes them without counting them.
        """
        problems: list[str] = []
        for index in self.indexes():
            path = self.file(index)
            try:
                reader = SnapshotReader(self.disk, path)
                problem = judge(reader.header)
                if reader.header.index != index:
                    problem = f"it is of entry {reader.header.index}"
                if problem is None:
                    reader.verify()
                    return Found(reader, problems)
                problems.append(f"{path}: {problem}")
            except SnapshotCorrupt as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{path}: {error.strerror or error}")
            self._useless.add(index)
        return Found(None, problems)

    def problems(self) -> list[str]:
        """Read every snapshot, and return the problems of the broken ones."""
        found = []
        for index in self.indexes():
            try:
                SnapshotReader(self.disk, self.file(index)).verify()
            except SnapshotCorrupt as error:
                found.append(str(error))
        return found

    def write(
        self, header: SnapshotHeader, chunks: Iterable[bytes], stop: Callable[[], bool]
    ) -> Snapshot | None:
        """Write a snapshot; durable on return. Returns None if `stop` became true meanwhile.

        Removes the file of a failed attempt. Errors of `chunks` pass through, and ValueError for a
        chunk that is too large.
        """
        new = f"{self.path}/{header.index:0{NAME_DIGITS}d}{_NEW_SUFFIX}"
        path = self.file(header.index)
        if new.rpartition("/")[2] in self.disk.list(self.path):
            self.disk.remove(new)  # left by a failed attempt
        writer = SnapshotWriter(self.disk, new, header)
        try:
            for chunk in chunks:
                if stop():
                    writer.close()
                    self.disk.remove(new)
                    return None
                writer.add(chunk)
            size = writer.finish()
            self.disk.rename(new, path)
        except Exception:
            writer.close()
            with contextlib.suppress(OSError):
                self.disk.remove(new)  # a full disk needs the space
            raise
        self._sync_names()
        self._useless.discard(header.index)
        return Snapshot(header, path, size)

    def adopt(self, part: str, header: SnapshotHeader, size: int) -> Snapshot:
        """Rename a whole and synced file of this folder to a snapshot; durable on return."""
        path = self.file(header.index)
        self.disk.rename(part, path)
        self._sync_names()
        self._useless.discard(header.index)
        return Snapshot(header, path, size)

    def read_piece(self, snapshot: Snapshot, offset: int, size: int) -> bytes:
        """Read `size` bytes of a snapshot's file at `offset`."""
        with contextlib.closing(self.disk.open(snapshot.path, writable=False)) as file:
            return file.read(size, offset)

    def reader(self, snapshot: Snapshot) -> SnapshotReader:
        """Return a reader of the file. Raises SnapshotCorrupt."""
        return SnapshotReader(self.disk, snapshot.path)

    def look_at_all_again(self) -> None:
        """Count the useless snapshots as usable again: another judge may accept them."""
        self._useless.clear()

    def keep_newest(self, count: int, needed: Collection[int] = ()) -> None:
        """Remove the useless snapshots, and the others except the newest `count` and `needed`."""
        kept = {*self.indexes()[:count], *needed}
        for name in self.disk.list(self.path):
            if name.endswith(_SUFFIX):
                index = start_of(name[: -len(_SUFFIX)])
                if index is not None and index not in kept:
                    self.disk.remove(f"{self.path}/{name}")
                    self._useless.discard(index)

    def file(self, index: int) -> str:
        return f"{self.path}/{index:0{NAME_DIGITS}d}{_SUFFIX}"
