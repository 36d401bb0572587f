"""The record of a node's folder: term, vote, identity, and what recovery may rely on.

The file has two slots of 512 bytes, 4 KiB apart (a disk may tear one physical sector), written
in turn; the newer one with a valid CRC wins. The slot that holds the last durable record is never
written, even after a write without a sync.

==== ==== ===================== ==============================================================
 off size field                 value
==== ==== ===================== ==============================================================
   0    8 magic                 b"DLedgerH"
   8    4 version               2; records of version 1 are read
  12    4 before_begin_chain    chainCrc of the entry before the first one kept; 0 if unknown
  16    8 sequence              grows with every write
  24    8 term
  32    8 committed             a durable lower bound; -1 for nothing
  40    8 unchecked_through     entries up to here came from Java: their CRC fields are unused
  48    8 before_begin          index before the first one kept; -1 in a whole log
  56    8 before_begin_term     its term; -1 if unknown
  64    8 scan_pos              recovery may begin at this segment: all before it is synced
  72    8 scan_index            index of the first entry at or after scan_pos
  80    8 segment_bytes
  88    8 index_segment_bytes
  96    8 begin_pos             position of the first entry kept
 104    8 configuration_index   the last entry of magic 3 before scan_index; -1 for none. Version 1
                               has no such field: its names begin here
112      vote, group, node id  each one length byte and UTF-8; length 255 = no vote
 508    4 CRC-32 of bytes 0..507
==== ==== ===================== ==============================================================

All integers are big-endian and signed, but for the two CRCs.

The *synced mark* at byte 8192 names the last entry that was synced: b"DLsynced", the index in 8
bytes, CRC-32 of these 16. Each sync of the log writes the mark but does not sync it, so the mark
survives the process, and survives a power cut if the file was synced since. Without a valid mark
nothing is known.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import NamedTuple
from zlib import crc32

from dledger.core.hard_state import HardState
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM
from dledger.errors import ConfigInvalid, HardStateLost
from dledger.store.disk import Disk, DiskFile

FILE_NAME = "hard-state"
_NEW_NAME = "hard-state.new"
SLOT_BYTES = 512
SLOT_DISTANCE_BYTES = 4096
# In a physical sector of its own: a write of it must never tear the last durable record.
MARK_AT = 2 * SLOT_DISTANCE_BYTES
_MARK = struct.Struct(">8sqI")
_MARK_MAGIC = b"DLsynced"
FILE_BYTES = MARK_AT + _MARK.size
# Three names and their length bytes must fit after the numbers: 112 + 3 * 128 <= 508.
MAX_NAME_BYTES = 127

_MAGIC = b"DLedgerH"
_VERSION = 2
_NUMBERS = struct.Struct(">8siIqqqqqqqqqqqq")
_VERSION_1 = 1
_NUMBERS_1 = struct.Struct(">8siIqqqqqqqqqqq")
_SUM = struct.Struct(">I")
_SUM_AT = SLOT_BYTES - _SUM.size
_NO_VOTE = 255


class StoreRecord(NamedTuple):
    """The content of one slot. See the table of the module."""

    group: str
    node_id: str
    segment_bytes: int
    index_segment_bytes: int
    term: int = 0
    voted_for: str | None = None
    committed: int = BEFORE_FIRST_INDEX
    unchecked_through: int = BEFORE_FIRST_INDEX
    before_begin: int = BEFORE_FIRST_INDEX
    before_begin_term: int = NO_TERM
    before_begin_chain: int = 0
    scan_pos: int = 0
    scan_index: int = 0
    begin_pos: int = 0
    configuration_index: int = BEFORE_FIRST_INDEX

    @property
    def hard_state(self) -> HardState:
        """The part of the record that the core uses."""
        return HardState(self.term, self.voted_for, self.committed)


def check_name(setting: str, name: str) -> None:
    """Raise ConfigInvalid unless `name` fits into the record and into a path."""
    if not name or len(name.encode()) > MAX_NAME_BYTES or "/" in name or "\0" in name:
        raise ConfigInvalid(setting, f"{name!r} is not 1 to {MAX_NAME_BYTES} bytes without '/'")


def encode_record(record: StoreRecord, sequence: int) -> bytes:
    names = []
    for name in (record.voted_for, record.group, record.node_id):
        content = b"" if name is None else name.encode()
        names.append(bytes((_NO_VOTE if name is None else len(content),)) + content)
    numbers = _NUMBERS.pack(
        _MAGIC,
        _VERSION,
        record.before_begin_chain,
        sequence,
        record.term,
        record.committed,
        record.unchecked_through,
        record.before_begin,
        record.before_begin_term,
        record.scan_pos,
        record.scan_index,
        record.segment_bytes,
        record.index_segment_bytes,
        record.begin_pos,
        record.configuration_index,
    )
    slot = (numbers + b"".join(names)).ljust(_SUM_AT, b"\0")
    return slot + _SUM.pack(crc32(slot))


def decode_record(slot: bytes) -> tuple[StoreRecord, int] | None:
    """Decode the record and its sequence number; None if the slot holds no valid record."""
    if len(slot) != SLOT_BYTES or _SUM.unpack_from(slot, _SUM_AT)[0] != crc32(slot[:_SUM_AT]):
        return None
    magic, version, *_ = _NUMBERS_1.unpack_from(slot)
    layout = {_VERSION: _NUMBERS, _VERSION_1: _NUMBERS_1}.get(version)
    if magic != _MAGIC or layout is None:
        return None
    _, _, chain, sequence, *numbers = layout.unpack_from(slot)
    names: list[str | None] = []
    at = layout.size
    for _ in range(3):
        length = slot[at]
        at += 1
        if length == _NO_VOTE:
            names.append(None)
            continue
        names.append(slot[at : at + length].decode())
        at += length
    term, committed, unchecked, before, before_term, *numbers = numbers
    scan_pos, scan_index, data, index, begin_pos, *changes = numbers
    vote, group, node_id = names
    record = StoreRecord(
        group=group or "",
        node_id=node_id or "",
        segment_bytes=data,
        index_segment_bytes=index,
        term=term,
        voted_for=vote,
        committed=committed,
        unchecked_through=unchecked,
        before_begin=before,
        before_begin_term=before_term,
        before_begin_chain=chain,
        scan_pos=scan_pos,
        scan_index=scan_index,
        begin_pos=begin_pos,
        # No log before version 2 has such an entry.
        configuration_index=changes[0] if changes else BEFORE_FIRST_INDEX,
    )
    return record, sequence


def newest_record(content: bytes) -> tuple[StoreRecord, int, int] | None:
    """Return the newer valid record of a file, its sequence number and its slot (0 or 1)."""
    found = None
    for slot in (0, 1):
        at = slot * SLOT_DISTANCE_BYTES
        decoded = decode_record(content[at : at + SLOT_BYTES])
        if decoded is not None and (found is None or decoded[1] > found[1]):
            found = (*decoded, slot)
    return found


def encode_mark(index: int) -> bytes:
    """Encode the synced mark for entry `index`."""
    check = crc32(_MARK_MAGIC + index.to_bytes(8, "big", signed=True))
    return _MARK.pack(_MARK_MAGIC, index, check)


def decode_mark(content: bytes) -> int:
    """Decode the index in the mark of a file's content; -1 without a valid mark."""
    found = content[MARK_AT:FILE_BYTES]
    if len(found) < _MARK.size:
        return BEFORE_FIRST_INDEX
    index: int = _MARK.unpack(found)[1]
    return index if found == encode_mark(index) else BEFORE_FIRST_INDEX


class HardStateFile:
    """The open file. Errors of the disk pass through as OSError.

    Attributes:
        synced: the entry that the synced mark names; -1 for none.
    """

    def __init__(self, file: DiskFile, durable_slot: int, sequence: int, synced: int) -> None:
        self._file = file
        self._durable_slot = durable_slot
        self._sequence = sequence
        self.synced = synced

    @classmethod
    def open(cls, disk: Disk, folder: str) -> tuple[HardStateFile, StoreRecord] | None:
        """Open the file, and return it with its newest record; None if there is no file.

        Raises HardStateLost if it holds no valid record. A crash cannot cause that: the file gets
        its name after its first record is written, and a write never touches the other slot.
        """
        if FILE_NAME not in disk.list(folder):
            return None
        path = f"{folder}/{FILE_NAME}"
        file = disk.open(path)
        try:
            # Bytes that a killed process wrote may be in the page cache only: sync before use.
            file.sync()
            content = file.read(FILE_BYTES, 0)
            newest = newest_record(content)
            if newest is None:
                raise HardStateLost(path)
        except BaseException:
            file.close()
            raise
        record, sequence, slot = newest
        return cls(file, slot, sequence, decode_mark(content)), record

    @classmethod
    def create(cls, disk: Disk, folder: str, record: StoreRecord) -> HardStateFile:
        """Create the file with one record; durable on return."""
        if _NEW_NAME in disk.list(folder):
            disk.remove(f"{folder}/{_NEW_NAME}")
        with closing(disk.create(f"{folder}/{_NEW_NAME}")) as file:
            file.allocate(FILE_BYTES)  # a full disk has to take every later record
            file.write(encode_record(record, 1), 0)
            file.sync()
        disk.rename(f"{folder}/{_NEW_NAME}", f"{folder}/{FILE_NAME}")
        disk.sync_folder(folder)
        return cls(disk.open(f"{folder}/{FILE_NAME}"), 0, 1, BEFORE_FIRST_INDEX)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def is_first_record(self) -> bool:
        """Whether no record was written since the file was created."""
        return self._sequence == 1

    def write(self, record: StoreRecord, *, durable: bool) -> None:
        """Write the record into the slot that does not hold the last durable record."""
        slot = 1 - self._durable_slot
        self._sequence += 1
        self._file.write(encode_record(record, self._sequence), slot * SLOT_DISTANCE_BYTES)
        if durable:
            self._file.sync()
            self._durable_slot = slot

    def mark_synced(self, index: int) -> None:
        """Write the synced mark, for entries that are durable up to `index`."""
        if index != self.synced:
            self._file.write(encode_mark(index), MARK_AT)
            self.synced = index

    def lower_mark(self, index: int) -> None:
        """Lower the mark to `index` if it names a later entry; durable on return.

        Call this before the log is cut: the entries that replace the cut ones are not synced yet.
        """
        if index < self.synced:
            self.mark_synced(index)
            self._file.sync()

    def close(self) -> None:
        self._file.close()
