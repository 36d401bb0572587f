"""Receives the file of one snapshot from its beginning on, and adds it to the snapshot folder.

The name of the partial file holds the entry and the history of the snapshot, so that a restarted
member can continue it. Only the synced part counts then. The snapshot is used only when the whole
file has arrived and every sum in it is right.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from dledger.core.membership.configuration_codec import decode_configuration
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.declared_error import DeclaredError
from dledger.errors import ConfigurationMalformed, SnapshotCorrupt
from dledger.store.disk import DiskFile
from dledger.store.segment import NAME_DIGITS
from dledger.store.snapshot_file import SnapshotReader
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import MAX_HEADER_BYTES, SnapshotHeader

PART_SUFFIX = ".part"

# The unit of progress that survives a power cut. Everything up to a multiple of it is synced before
# anything after it is written, so the length of a partial file tells how much of it is durable.
SYNC_BYTES = 8 * 1024 * 1024


class SnapshotUnwanted(DeclaredError):
    """This member cannot accept an offered snapshot; the message says why, in one line."""

    problem: str


class Received(NamedTuple):
    """How many bytes of the file have arrived, and the snapshot once it is complete and valid."""

    stored: int
    snapshot: Snapshot | None = None


class IncomingSnapshot:
    """Receives one snapshot at a time, in one thread at a time. OSError passes through.

    Args:
        folder: receives the snapshot.
        group, machine: the names that the header must have.
        sync_bytes: the unit of progress that survives a power cut.
    """

    def __init__(
        self, folder: SnapshotFolder, group: str, machine: str, sync_bytes: int = SYNC_BYTES
    ) -> None:
        self._sync_bytes = sync_bytes
        self._disk = folder.disk
        self._folder = folder
        self._group = group
        self._machine = machine
        self._offer: SnapshotOffer | None = None
        self._file: DiskFile | None = None
        self._count = 0
        self._header_checked = False
        self._whole: Snapshot | None = None
        self._spoilt: set[str] = set()  # partial files whose sync failed, until they are removed

    def take(self, offer: SnapshotOffer, offset: int, piece: bytes) -> Received:
        """Take a piece of the offered file, or an empty one; return what has arrived so far.

        A piece that does not follow the last one is ignored: the leader sends it again. Raises
        SnapshotUnwanted for a snapshot that this member cannot use, or that arrived broken.
        """
        if self._offer != offer:
            self.close()
            self._begin(offer)
        if self._whole is None:
            try:
                if piece and offset == self._count:
                    self._write(piece)
                self._check(offer)
            except OSError:
                self._discard(offer)  # after a failed sync the content on disk is unknown
                raise
            except SnapshotCorrupt as error:
                self._discard(offer)
                raise SnapshotUnwanted(f"what arrived is broken: {error}") from error
        return Received(self._count, self._whole)

    def close(self) -> None:
        """Close the partial file, and keep it on disk."""
        file, self._file, self._offer = self._file, None, None
        if file is not None:
            file.close()

    def _discard(self, offer: SnapshotOffer) -> None:
        self.close()
        path = self._path(offer)
        self._spoilt.add(path)
        with contextlib.suppress(OSError):  # tried again before the next write to it
            self._disk.remove(path)
            self._spoilt.discard(path)

    def _path(self, offer: SnapshotOffer) -> str:
        index, term, chain = offer.identity
        return f"{self._folder.path}/{index:0{NAME_DIGITS}d}-{term}-{chain:08x}{PART_SUFFIX}"

    def _begin(self, offer: SnapshotOffer) -> None:
        """Find the stored part of the file; remove the partial files of other snapshots."""
        self._header_checked, self._whole = False, self._found(offer)
        self._count = offer.size if self._whole is not None else 0
        path = self._path(offer)
        names = [n for n in self._disk.list(self._folder.path) if n.endswith(PART_SUFFIX)]
        for name in names:
            part = f"{self._folder.path}/{name}"
            if self._whole is not None or part != path or part in self._spoilt:
                self._disk.remove(part)
                self._spoilt.discard(part)
        if self._whole is None:
            names = self._disk.list(self._folder.path)
            if path.rpartition("/")[2] in names:
                self._file = self._disk.open(path)
                kept = min(self._file.size(), offer.size)
                self._count = kept // self._sync_bytes * self._sync_bytes
            else:
                self._file = self._disk.create(path)
                self._disk.sync_folder(self._folder.path)
        self._offer = offer

    def _found(self, offer: SnapshotOffer) -> Snapshot | None:
        """Return the offered snapshot if a crash came after its adoption and before its log's."""
        path = self._folder.file(offer.index)
        try:
            reader = SnapshotReader(self._disk, path)
            if reader.size == offer.size and _identity(reader.header) == offer.identity:
                self._check_header(reader.header)
                reader.verify()
                self._folder.make_durable(reader)
                return Snapshot(reader.header, path, reader.size)
        except (SnapshotCorrupt, FileNotFoundError, SnapshotUnwanted):
            return None
        return None

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        while piece:
            room = self._sync_bytes - self._count % self._sync_bytes
            part, piece = piece[:room], piece[room:]
            self._file.write(part, self._count)
            self._count += len(part)
            if self._count % self._sync_bytes == 0:
                self._file.sync()

    def _check_header(self, header: SnapshotHeader) -> None:
        if header.group != self._group:
            raise SnapshotUnwanted(f"it is of group {header.group}")
        if header.machine != self._machine:
            raise SnapshotUnwanted(
                f"it has the format {header.machine!r}, but the state machine here reads "
                f"{self._machine!r}: start this member with the program of the others"
            )
        if self._offer is not None and _identity(header) != self._offer.identity:
            raise SnapshotUnwanted(f"it is of entry {header.index}, not of the offered one")
        try:
            if header.configuration:
                decode_configuration(header.configuration)
        except ConfigurationMalformed as error:
            raise SnapshotUnwanted(error.problem) from error
        self._header_checked = self._offer is not None

    def _check(self, offer: SnapshotOffer) -> None:
        """Check the header as soon as it has arrived, and everything once the file is complete."""
        path = self._path(offer)
        if not self._header_checked and self._count >= min(MAX_HEADER_BYTES, offer.size):
            self._check_header(SnapshotReader(self._disk, path).header)
        if self._file is None or self._count < offer.size:
            return
        self._file.sync()
        reader = SnapshotReader(self._disk, path)
        if reader.size != offer.size:
            raise SnapshotCorrupt(path, offer.size, "something follows the closing record")
        reader.verify()
        self._file.close()
        self._file = None
        self._whole = self._folder.adopt(path, reader.header, reader.size)


def _identity(header: SnapshotHeader) -> tuple[int, int, int]:
    return header.index, header.term, header.chain_crc
