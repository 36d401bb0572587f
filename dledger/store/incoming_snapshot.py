"""Receives one snapshot's file, from its beginning on, and makes it one of the folder's.

The part has a name of its own, by the entry and the history that the snapshot is of: a member that
is restarted goes on with it. Only what was synced counts then, and nothing is believed before the
whole file is here and every sum in it is right.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from dledger.core.membership.configuration_codec import decode_configuration
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.errors import ConfigurationMalformed, SnapshotCorrupt
from dledger.store.disk import DiskFile
from dledger.store.segment import NAME_DIGITS
from dledger.store.snapshot_file import SnapshotReader
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import MAX_HEADER_BYTES, SnapshotHeader

PART_SUFFIX = ".part"

# The unit of progress that outlives a power cut. Nothing behind a multiple of it is written before
# everything up to there is synced, so the length of a part tells what can be relied on.
SYNC_BYTES = 8 * 1024 * 1024


class SnapshotUnwanted(Exception):
    """An offered snapshot cannot be taken here: why, in one line."""


class Received(NamedTuple):
    """How much of the file is here, and the snapshot once it is whole and right."""

    stored: int
    snapshot: Snapshot | None = None


class IncomingSnapshot:
    """What a folder receives; one snapshot at a time. One thread at a time; OSError passes through.

    Args:
        folder: where.
        group, machine: the names that the header must have.
        sync_bytes: the unit of progress that outlives a power cut.
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
        self._spoilt: set[str] = set()  # parts of which a sync failed, until they are removed

    def take(self, offer: SnapshotOffer, offset: int, piece: bytes) -> Received:
        """Take a piece of the offered file, or none; what is here now.

        A piece that does not follow what is here is left alone: it comes again. Raises
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
                self._discard(offer)  # after a failed sync nobody knows what the disk has
                raise
            except SnapshotCorrupt as error:
                self._discard(offer)
                raise SnapshotUnwanted(f"what arrived is broken: {error}") from error
        return Received(self._count, self._whole)

    def close(self) -> None:
        """Close the part; it stays where it is."""
        file, self._file, self._offer = self._file, None, None
        if file is not None:
            file.close()

    def _discard(self, offer: SnapshotOffer) -> None:
        self.close()
        path = self._path(offer)
        self._spoilt.add(path)
        with contextlib.suppress(OSError):  # else before it is written to again
            self._disk.remove(path)
            self._spoilt.discard(path)

    def _path(self, offer: SnapshotOffer) -> str:
        index, term, chain = offer.identity
        return f"{self._folder.path}/{index:0{NAME_DIGITS}d}-{term}-{chain:08x}{PART_SUFFIX}"

    def _begin(self, offer: SnapshotOffer) -> None:
        """Find out what is here of it; parts of others are of no use any more."""
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
        """The offered snapshot, if this folder has it already: a crash came before its log."""
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
                f"it has the format {header.machine!r}, the state machine here reads "
                f"{self._machine!r}: start this member with the program of the others"
            )
        if self._offer is not None and _identity(header) != self._offer.identity:
            raise SnapshotUnwanted(f"it is of entry {header.index}, offered was another one")
        try:
            if header.configuration:
                decode_configuration(header.configuration)
        except ConfigurationMalformed as error:
            raise SnapshotUnwanted(error.problem) from error
        self._header_checked = self._offer is not None

    def _check(self, offer: SnapshotOffer) -> None:
        """Look at the header as soon as it is here, and at everything when everything is."""
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
