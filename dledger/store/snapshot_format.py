"""The bytes of a snapshot file. Pure.

A header, the state machine's chunks as it gave them, and a closing record. All integers are
big-endian and unsigned, but for index, term and pos. Every record has a CRC-32.

====== ==== ================ ==================================================================
 part  size field            value
====== ==== ================ ==================================================================
header    8 magic            b"DLedgerS"
          4 version          1
          4 header size      with its CRC
          8 index            of the last entry in the state
          8 term             of that entry
          8 pos              of that entry in the log
          4 size             of that entry, header included
          4 chainCrc         of that entry: equal sums, equal history
          4+ configuration   length, then the group's configuration at that entry (0: as started)
          2+ group           length, then UTF-8
          2+ machine         length, then the name that the state machine gave its format, UTF-8
          4 CRC              of all of the header before it
chunk     4 size             0..16 MiB
          4 CRC              of the size and the content
            content
end       4 mark             0xFFFFFFFF, where a chunk has its size
          8 chunks           how many there are
          8 bytes            of content in all of them
          4 CRC of CRCs      CRC-32 over the header's CRC and the chunks' CRCs
          4 CRC              of the 24 bytes before it
====== ==== ================ ==================================================================

Nothing follows the closing record.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from dledger.short_repr import short_repr

MAGIC = b"DLedgerS"
VERSION = 1

# The limit of one chunk: the reader and the state machine hold a whole chunk in memory.
MAX_CHUNK_BYTES = 16 * 1024 * 1024
# A configuration is a list of members, and names are short: both take a fraction of this.
MAX_HEADER_BYTES = 64 * 1024
MAX_NAME_BYTES = 255

START = struct.Struct(">8sII")
_PLACE = struct.Struct(">qqqII")
_LONG = struct.Struct(">I")
_SHORT = struct.Struct(">H")
CHUNK = struct.Struct(">II")
END = struct.Struct(">IQQI")
SUM = struct.Struct(">I")
END_BYTES = END.size + SUM.size
END_MARK = 0xFFFFFFFF


class SnapshotHeader(NamedTuple):
    """The header of a snapshot. Its fields describe the last entry in the state."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    size: int
    chain_crc: int
    group: str
    machine: str = ""
    configuration: bytes = b""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def end_pos(self) -> int:
        """Position of the byte after the last entry in the state."""
        return self.pos + self.size


def encode_header(header: SnapshotHeader) -> bytes:
    """Encode the header. Raises ValueError for names or a configuration that are too long."""
    group, machine = header.group.encode(), header.machine.encode()
    if len(group) > MAX_NAME_BYTES or len(machine) > MAX_NAME_BYTES:
        raise ValueError(f"a name of more than {MAX_NAME_BYTES} bytes: {group!r}, {machine!r}")
    rest = b"".join(
        (
            _PLACE.pack(header.index, header.term, header.pos, header.size, header.chain_crc),
            _LONG.pack(len(header.configuration)),
            header.configuration,
            _SHORT.pack(len(group)),
            group,
            _SHORT.pack(len(machine)),
            machine,
        )
    )
    size = START.size + len(rest) + SUM.size
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {size} bytes; the limit is {MAX_HEADER_BYTES}")
    whole = START.pack(MAGIC, VERSION, size) + rest
    return whole + SUM.pack(crc32(whole))


def header_size(start: bytes) -> int | None:
    """Return the length of the header that begins with these bytes; None if they begin none."""
    if len(start) < START.size:
        return None
    magic, version, size = START.unpack_from(start)
    if magic != MAGIC or version != VERSION or not START.size < size <= MAX_HEADER_BYTES:
        return None
    return int(size)


def decode_header(content: bytes) -> SnapshotHeader | None:
    """Decode the header in these bytes, which `header_size` counted; None if it is broken."""
    if len(content) < START.size + SUM.size:
        return None
    if SUM.unpack_from(content, len(content) - SUM.size)[0] != crc32(content[: -SUM.size]):
        return None
    try:
        index, term, pos, size, chain = _PLACE.unpack_from(content, START.size)
        at = START.size + _PLACE.size
        parts = []
        for length in (_LONG, _SHORT, _SHORT):
            (count,) = length.unpack_from(content, at)
            at += length.size
            parts.append(content[at : at + count])
            at += count
        configuration, group, machine = parts
        if at + SUM.size != len(content) or min(index, term, pos) < 0:
            return None
        return SnapshotHeader(
            index, term, pos, size, chain, group.decode(), machine.decode(), configuration
        )
    except (struct.error, UnicodeDecodeError):
        return None  # the sum is valid, so another program wrote it


def chunk_sum(chunk: bytes) -> int:
    """Return the CRC-32 of a chunk's size and content."""
    return crc32(chunk, crc32(SUM.pack(len(chunk))))


def encode_end(chunks: int, content_bytes: int, sum_of_sums: int) -> bytes:
    whole = END.pack(END_MARK, chunks, content_bytes, sum_of_sums)
    return whole + SUM.pack(crc32(whole))
