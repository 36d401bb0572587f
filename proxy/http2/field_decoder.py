"""Decodes blocks of headers (RFC 7541), within bounds. Pure.

The table and Huffman's code are those of the library `hpack`. Its decoder takes twice as long.
"""

import re
from typing import Final, TypeAlias

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from proxy.http2.errors import ConnectionFault
from proxy.http2.frames import ErrorCode

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]

# RFC 7541, section 4.1: what a field counts besides its octets.
FIELD_BYTES: Final = 32
# The table that HTTP/2 begins with. No other size is announced.
TABLE_BYTES: Final = 4096

# An integer of so many octets is above every bound, and no peer needs more.
_INTEGER_OCTETS: Final = 4

# Fields that one octet names each. What is remembered of one connection has bounds: a run may name
# the longest entry of the table again and again, and that is decoded before it is counted.
_INDEXED: Final = re.compile(rb"[\x81-\xfe]+")
_MOST_IN_RUN: Final = 32
_MOST_RUNS: Final = 32

_STATIC: Final = HeaderTable.STATIC_TABLE
_STATIC_LENGTH: Final = len(_STATIC)


def _malformed(reason: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"the block of headers {reason}")


class FieldDecoder:
    """Decodes the blocks of one connection, in their order.

    Args:
        max_list_bytes: of the fields of a block, as SETTINGS_MAX_HEADER_LIST_SIZE counts them.
    """

    __slots__ = ("_known", "_max_list_bytes", "_table")

    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._table = HeaderTable()
        # Runs of fields that stand in the table, while it is as it is; and what they count.
        self._known: dict[bytes, tuple[Fields, int]] = {}

    def decode(self, block: bytes) -> Fields:
        """Return names and values. Raises ConnectionFault: the table is lost with the block."""
        try:
            return self._decode(block)
        except HPACKError as error:
            raise _malformed(f"cannot be decoded: {error}") from None
        except IndexError:
            raise _malformed("ends within a field") from None

    def _decode(self, block: bytes) -> Fields:
        fields: list[tuple[bytes, bytes]] = []
        at, end, listed = 0, len(block), 0
        while at < end:
            first = block[at]
            if 0x80 < first < 0xFF:
                run, at = self._run(block, at)
                fields += run[0]
                listed += run[1]
                self._check_size(listed)
                continue
            at += 1
            if first & 0x80:
                index = first & 0x7F
                if index == 0x7F:
                    index, at = _long_integer(block, at, 0x7F)
                field = self._entry(index)
            elif first & 0x60 == 0x20:
                if fields:
                    raise _malformed("changes the table's size after a field")
                size = first & 0x1F
                if size == 0x1F:
                    size, at = _long_integer(block, at, 0x1F)
                if size > TABLE_BYTES:
                    raise _malformed(f"asks for a table of {size} bytes, over {TABLE_BYTES}")
                self._table.maxsize = size
                self._known.clear()
                continue
            else:
                mask = 0x3F if first & 0x40 else 0x0F
                index = first & mask
                if index == mask:
                    index, at = _long_integer(block, at, mask)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _text(block, at)
                value, at = _text(block, at)
                field = (name, value)
                if first & 0x40:
                    self._table.add(name, value)
                    self._known.clear()
            fields.append(field)
            listed += FIELD_BYTES + len(field[0]) + len(field[1])
            self._check_size(listed)
        return tuple(fields)

    def _run(self, block: bytes, at: int) -> tuple[tuple[Fields, int], int]:
        """Return fields of the table that stand together, and where they end.

        Most calls of a connection have the same ones.
        """
        found = _INDEXED.match(block, at)
        assert found is not None
        run = found[0][:_MOST_IN_RUN]
        known = self._known.get(run)
        if known is None:
            entries = tuple([self._entry(octet & 0x7F) for octet in run])
            known = entries, sum([FIELD_BYTES + len(name) + len(value) for name, value in entries])
            if len(self._known) >= _MOST_RUNS:
                self._known.clear()
            self._known[run] = known
        return known, at + len(run)

    def _check_size(self, listed: int) -> None:
        if listed > self._max_list_bytes:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"headers of more than {self._max_list_bytes} bytes: send fewer",
            )

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= _STATIC_LENGTH:
            return _STATIC[index - 1]
        return self._table.get_by_index(index)


def _long_integer(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return an integer that began with a full prefix, and where it ends."""
    for octet in range(_INTEGER_OCTETS):
        byte = block[at + octet]
        value += (byte & 0x7F) << (7 * octet)
        if byte < 0x80:
            return value, at + octet + 1
    raise _malformed("has an integer that is too long")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a text, and where it ends."""
    first = block[at]
    length = first & 0x7F
    at += 1
    if length == 0x7F:
        length, at = _long_integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise _malformed("ends within a field")
    text = block[at:end]
    return (decode_huffman(text) if first & 0x80 else text), end
