"""The row of a lite topic: where its messages are in the log.

A row is bytes: the offset of the first message that it knows and the time of the last one, six
bytes each, then six bytes for the position of each message. In a long row, full blocks of positions
come before that, each bytes of its own, so that one more message copies little.
"""

from bisect import bisect_left
from typing import Final, TypeAlias

Row: TypeAlias = bytes | tuple[bytes, ...]

_NUMBER: Final = 6
_HEAD: Final = 2 * _NUMBER
BLOCK_MESSAGES: Final = 1024
_BLOCK_BYTES: Final = BLOCK_MESSAGES * _NUMBER
_MAX_NUMBER: Final = (1 << 8 * _NUMBER) - 1


def _bytes(number: int) -> bytes:
    return min(number, _MAX_NUMBER).to_bytes(_NUMBER, "big")


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + _NUMBER], "big")


def first_row(position: int, at_ms: int) -> Row:
    """Return the row of a lite topic with one message. Times are milliseconds since 1970."""
    return _bytes(0) + _bytes(at_ms) + _bytes(position)


def _parts(row: Row) -> tuple[tuple[bytes, ...], bytes]:
    return ((), row) if isinstance(row, bytes) else (row[:-1], row[-1])


def known_from(row: Row) -> int:
    """Return the offset of the first message that the row knows."""
    return _number(_parts(row)[1], 0)


def last_ms(row: Row) -> int:
    """Return when the last message was stored."""
    return _number(_parts(row)[1], _NUMBER)


def count(row: Row) -> int:
    blocks, tail = _parts(row)
    return len(blocks) * BLOCK_MESSAGES + (len(tail) - _HEAD) // _NUMBER


def end(row: Row) -> int:
    """Return the offset of the next message."""
    return known_from(row) + count(row)


def position(row: Row, offset: int) -> int:
    """Return where a message that the row knows is in the log."""
    blocks, tail = _parts(row)
    at = offset - _number(tail, 0)
    block, within = divmod(at, BLOCK_MESSAGES)
    if block < len(blocks):
        return _number(blocks[block], within * _NUMBER)
    return _number(tail, _HEAD + (at - len(blocks) * BLOCK_MESSAGES) * _NUMBER)


def last_position(row: Row) -> int:
    return position(row, end(row) - 1)


def begin(row: Row, kept_position: int) -> int:
    """Return the offset of the first message at or behind a position of the log."""
    first, number = known_from(row), count(row)
    if not number or position(row, first) >= kept_position:
        return first
    return first + bisect_left(
        range(number), kept_position, key=lambda at: position(row, first + at)
    )


def appended(row: Row, at: int, at_ms: int, kept_position: int) -> Row:
    """Return the row with one more message, without some before a position of the log."""
    blocks, tail = _parts(row)
    first = _number(tail, 0)
    dropped = 0
    while (
        dropped < len(blocks) and _number(blocks[dropped], _BLOCK_BYTES - _NUMBER) < kept_position
    ):
        dropped += 1
    blocks = blocks[dropped:]
    first += dropped * BLOCK_MESSAGES
    positions = tail[_HEAD:]
    if len(positions) == _BLOCK_BYTES:
        blocks, positions = (*blocks, positions), b""
    elif not blocks and positions and _number(positions, len(positions) - _NUMBER) < kept_position:
        first += len(positions) // _NUMBER
        positions = b""
    tail = _bytes(first) + _bytes(at_ms) + positions + _bytes(at)
    return (*blocks, tail) if blocks else tail


def read_row(value: object) -> Row:
    """Check the row of a snapshot. Raises ValueError, TypeError."""
    blocks = (value,) if isinstance(value, bytes) else value
    if not isinstance(blocks, list | tuple) or not all(isinstance(one, bytes) for one in blocks):
        raise TypeError(f"{value!r:.80} is no row")
    *full, tail = blocks
    if any(len(block) != _BLOCK_BYTES for block in full):
        raise ValueError("a block of another size")
    if len(tail) < _HEAD or (len(tail) - _HEAD) % _NUMBER:
        raise ValueError("a row of another size")
    return (*full, tail) if full else tail
