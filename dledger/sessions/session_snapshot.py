"""The session table as canonical bytes: equal tables give equal bytes, on every member.

A magic line, then records: a length (u32, big-endian) and msgpack. The first record is [version,
time in ms, number of sessions], each other one a session, the least recently used first. The
snapshot of the application's own machine follows the last record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import msgpack

from dledger.sessions.session_errors import SessionTableInvalid
from dledger.sessions.session_table import FrozenSession, Kept, SessionTable

MAGIC = b"dledger sessions\n"
VERSION = 1

# More than the largest session takes, with the highest limits that an entry may ask for; a length
# above it is refused before anything is allocated for it.
MAX_RECORD_BYTES = 4 * 1024 * 1024

_LENGTH = struct.Struct(">I")


def encode_table(table: SessionTable) -> Iterator[bytes]:
    """Encode a table in pieces, as it is at the call."""
    head = [VERSION, table.time_ms, len(table)]
    return _encode(head, table.frozen())


def _encode(head: list[int], sessions: list[FrozenSession]) -> Iterator[bytes]:
    yield MAGIC
    yield _record(head)
    for session in sessions:
        yield _record(session)


def _record(content: object) -> bytes:
    packed: bytes = msgpack.packb(content)
    return _LENGTH.pack(len(packed)) + packed


def decode_table(chunks: Iterable[bytes]) -> tuple[SessionTable, Iterator[bytes]]:
    """Decode the table at the beginning of `chunks`; return it and the chunks after it.

    Raises SessionTableInvalid.
    """
    reader = _Reader(chunks)
    if reader.take(len(MAGIC)) != MAGIC:
        raise SessionTableInvalid("no table at its beginning: was it made without WithSessions?")
    version, time_ms, count = _numbers(reader.record(), 3)
    if version != VERSION:
        raise SessionTableInvalid(f"version {version}; this member knows version {VERSION}")
    table = SessionTable.thawed(time_ms, (_session(reader.record()) for _ in range(count)))
    return table, reader.rest()


def _session(record: list[object]) -> FrozenSession:
    *numbers, kept = record
    session, ttl_ms, used_ms, last, answered, results, result_bytes = _numbers(numbers, 7)
    if not isinstance(kept, list):
        raise SessionTableInvalid("a session without results")
    return FrozenSession(
        session,
        ttl_ms,
        used_ms,
        last,
        answered,
        results,
        result_bytes,
        tuple(_kept(each) for each in kept),
    )


def _kept(record: object) -> Kept:
    if not isinstance(record, list) or not record:
        raise SessionTableInvalid("a malformed result")
    *numbers, result = record
    sequence, index = _numbers(numbers, 2)
    if result is not None and not isinstance(result, bytes):
        raise SessionTableInvalid("a result that is not bytes")
    return Kept(sequence, index, result)


def _numbers(values: list[object], count: int) -> list[int]:
    numbers = [value for value in values if type(value) is int]
    if len(values) != count or len(numbers) != count:
        raise SessionTableInvalid(f"not {count} numbers")
    return numbers


class _Reader:
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""

    def take(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            if not self._buffer:
                try:
                    self._buffer = next(self._chunks)
                except StopIteration:
                    raise SessionTableInvalid("it ends too early") from None
                continue
            part, self._buffer = self._buffer[:missing], self._buffer[missing:]
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def record(self) -> list[object]:
        (size,) = _LENGTH.unpack(self.take(_LENGTH.size))
        if size > MAX_RECORD_BYTES:
            raise SessionTableInvalid(f"a record of {size} bytes; the limit is {MAX_RECORD_BYTES}")
        try:
            record = msgpack.unpackb(self.take(size))
        except (ValueError, msgpack.UnpackException) as error:
            raise SessionTableInvalid("a record that is not msgpack") from error
        if not isinstance(record, list) or not record:
            raise SessionTableInvalid("a record that is not an array")
        return record

    def rest(self) -> Iterator[bytes]:
        if self._buffer:
            yield self._buffer
        yield from self._chunks
