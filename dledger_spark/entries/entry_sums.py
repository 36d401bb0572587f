"""The sums of many entries at once, compared with their headers and bodies. Pure.

A chain sum (dledger.entry.chain_crc) is the CRC-32 of forty bytes (an entry's first 36, and its
body's sum), begun with the sum of the entry before. CRC-32 is linear: for messages of one length it
is the XOR of the contributions of each byte at its place, and the initial value is an XOR over the
first four bytes. So forty look-ups in forty small tables compute a whole column, in about 0.1 us an
entry.

The sums of bodies are compared together, and one by one only if they differ. The bits of a CRC-32
are a polynomial over GF(2), and n bytes behind a piece multiply its sum by x^8n. So one call of
zlib for many bodies, compared with their joined sums, replaces a call for each: with some hundred
bytes in each, the calls cost more than the bytes.
"""

from functools import cache
from itertools import count
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dledger_spark.entries.entry_columns import (
    HEADER,
    HEADER_BYTES,
    EntryMismatch,
    Positions,
    binaries,
    bounds,
    fixed_part,
)

# The places of the summed bytes in an entry's header of 48 bytes.
_SUMMED: Final = (*range(36), *range(40, 44))
_POLYNOMIAL: Final = 0xEDB88320  # CRC-32 of zlib, bits reversed
_ONE: Final = 1 << 31  # the polynomial 1, bits reversed

Sums = npt.NDArray[np.uint32]


def check_sums(
    content: bytes,
    starts: Positions,
    bodies: Any,
    indexes: Positions,
    unchecked_through: int,
    previous_chain: int | None,
) -> None:
    """Compare each entry with its two sums: the body's, and the chain sum.

    `bodies` and `indexes` are those of `entry_batch`. The chain sum of an entry continues that of
    the entry before, and is not compared if that one is missing. `bodies` is None if only chain
    sums are compared. A sum of zero is not set. Entries
    up to `unchecked_through` came from Java, whose callers may put any number into the fields.
    `previous_chain` is the chain sum of the entry before the first one; None if it is unknown.

    Raises:
        EntryMismatch: a header or body is not the one that was written.
    """
    headers = fixed_part(binaries(content, starts), 0, HEADER)
    checked = indexes > unchecked_through
    if bodies is not None:
        _check_bodies(content, starts, bodies, headers, checked)
    chains = headers["chain_crc"].astype(np.uint32)
    checked &= chains != 0
    checked[1:] &= np.diff(indexes) == 1
    if previous_chain is None:
        checked[0] = False
    if checked.any():
        wrong = checked & (
            chain_sums(headers, np.append(np.uint32(previous_chain or 0), chains[:-1])) != chains
        )
        if wrong.any():
            problem = "the header does not match its CRC"
            raise EntryMismatch(int(wrong.argmax()), problem, sealed=True)


def _check_bodies(
    content: bytes,
    starts: Positions,
    bodies: Any,
    headers: npt.NDArray[Any],
    checked: npt.NDArray[np.bool_],
) -> None:
    """Raises EntryMismatch: a body that is `checked` is not the one that was written."""
    body_sums = headers["body_crc"].astype(np.uint32)
    rows = np.flatnonzero(checked & (body_sums != 0))
    if len(rows) == len(headers) and _match_together(bodies, body_sums):
        return
    view = memoryview(content)
    begins, ends = (starts[rows] + HEADER_BYTES).tolist(), starts[rows + 1].tolist()
    found = np.fromiter(
        (crc32(view[at:end]) or 1 for at, end in zip(begins, ends, strict=True)),
        np.uint32,
        len(rows),
    )
    wrong = found != body_sums[rows]
    if wrong.any():
        row = int(rows[wrong.argmax()])
        raise EntryMismatch(row, "the body does not match its CRC", sealed=True)


def _match_together(bodies: Any, sums: npt.NDArray[np.uint32]) -> bool:
    """Return whether adjacent bodies have these sums.

    A wrong body is missed no more often than by its own sum. The answer may be no for right bodies,
    as a sum of zero is written as one.
    """
    begins, ends = bounds(bodies)
    data = bodies.buffers()[2]
    if data is None or not len(begins):
        return False
    return crc32(memoryview(data)[begins[0] : ends[-1]]) == joined_sum(sums, ends - begins)


def _contributions() -> Sums:
    """Return the contribution of each value of a byte to the sum, for each of the forty places."""
    last = np.arange(256, dtype=np.uint32)
    for _bit in range(8):
        last = np.where(last & 1, (last >> 1) ^ np.uint32(_POLYNOMIAL), last >> 1)
    tables = [last]
    while len(tables) < len(_SUMMED):
        after = tables[-1]  # one more zero byte follows it
        tables.append((after >> 8) ^ last[after & 255])
    return np.array(tables[::-1], np.uint32)


_TABLES: Final = _contributions()


def chain_sums(headers: npt.NDArray[Any], previous: Sums) -> Sums:
    """Return the sums that headers should hold.

    `headers` are structured or plain rows of 48 bytes; `previous` are the chain sums of the entries
    before.
    """
    octets = np.ascontiguousarray(headers.view(np.uint8).reshape(len(headers), -1).T)
    begin = (~previous).astype("<u4").view(np.uint8).reshape(len(headers), 4)
    total = np.zeros(len(headers), np.uint32)
    for place, at in enumerate(_SUMMED):
        column = octets[at]
        if place < 4:
            column = column ^ begin[:, place]
        # Most places hold one value throughout: comparing is cheaper than looking it up.
        same = len(column) and (column == column[0]).all()
        total ^= _TABLES[place][column[0] if same else column]
    sums = ~total
    sums[sums == 0] = 1  # zero means "not set"
    return sums


def joined_sum(sums: Sums, lengths: npt.NDArray[np.int64]) -> int:
    """Return the CRC-32 of adjacent pieces, from the CRC-32 and the length of each."""
    behind = int(lengths.sum()) - np.cumsum(lengths)
    for digit in count():
        sums = _times_power(digit, behind & 255, sums)
        behind = behind >> 8
        if not behind.any():
            break
        # Pieces that are equally far from the end have the same factor from here on.
        starts = np.flatnonzero(np.diff(behind, prepend=-1))
        sums, behind = np.bitwise_xor.reduceat(sums, starts), behind[starts]
    return int(np.bitwise_xor.reduce(sums))


def _times_power(digit: int, exponents: npt.NDArray[np.int64], sums: Sums) -> Sums:
    """Return the products of sums and x^(8 * 256^digit * exponent)."""
    table = _products(digit)
    at = exponents << 10
    total = table[at + (sums & 255)]
    for octet in range(1, 4):
        total ^= table[at + (octet << 8) + (sums >> (8 * octet) & 255)]
    return total


@cache
def _products(digit: int) -> Sums:
    """Return the product of each power and each octet at each of four places, flat."""
    powers = [_ONE]
    factor = _base(digit)
    while len(powers) < 256:
        powers.append(_product(powers[-1], factor))
    basis = np.empty((256, 32), np.uint32)  # each power times x^31 .. x^0
    times = np.array(powers, np.uint32)
    for bit in reversed(range(32)):
        basis[:, bit] = times
        times = _times_x(times)
    table = np.zeros((256, 4, 256), np.uint32)
    for octet in range(4):
        for bit in range(8):
            low = 1 << bit
            column = basis[:, octet * 8 + bit, None]
            table[:, octet, low : 2 * low] = table[:, octet, :low] ^ column
    return table.reshape(-1)


@cache
def _base(digit: int) -> int:
    """Return x^(8 * 256^digit)."""
    if not digit:
        return _ONE >> 8
    power = _base(digit - 1)
    for _squaring in range(8):
        power = _product(power, power)
    return power


def _product(one: int, other: int) -> int:
    total = 0
    while one:
        if one & _ONE:
            total ^= other
        one = one << 1 & 0xFFFFFFFF
        other = int(_times_x(other))
    return total


def _times_x(value: Any) -> Any:
    return value >> 1 ^ (value & 1) * _POLYNOMIAL
