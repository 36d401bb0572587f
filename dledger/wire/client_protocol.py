"""What clients ask a node, over the same frames as peers: [request id, operation, arguments].

Many requests of a client may be on their way at once; answers come in any order, each with the id
of its request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from typing import NamedTuple

from dledger.entry import Entry
from dledger.errors import DLedgerError, MessageMalformed
from dledger.sessions.with_sessions import pack_result, unpack_result
from dledger.waits.pending_appends import Appended
from dledger.wire.frame import Frame, encode_frame

# Bodies in one append request; the frame limit bounds their bytes.
MAX_BODIES = 4096

# What one answer to `entries` holds at most, besides a single larger entry.
MAX_ENTRIES_BYTES = 1024 * 1024
# And how many entries: a row takes 38 bytes at most, and all rows stand in one header.
MAX_ENTRIES = 1_500

# How long a node may hold a request for an entry, or for a leader, that does not exist yet.
MAX_WAIT_MS = 30_000

# Requests of one connection that a node works on at a time, and their bytes; a client keeps within
# half of it, a node reads no further beyond it. As many as fill a sync several times.
MAX_OPEN_REQUESTS = 4_096
MAX_OPEN_BYTES = 32 * 1024 * 1024

# Results in the answer to one append; those behind it do not come along.
MAX_RESULTS_BYTES = 1024 * 1024

# Indexes, terms and positions are 64-bit in the file format.
_HIGHEST = 2**63 - 1

# Of each entry that was appended: its position, and the size of its result, -1 for none.
_APPENDED = struct.Struct(">qi")
_NO_RESULT = -1


class Operation(StrEnum):
    """What a client can ask."""

    STATUS = "status"
    LEADER = "leader"
    APPEND = "append"
    ENTRIES = "entries"
    TRANSFER = "transfer"
    SNAPSHOT = "snapshot"
    CHANGE = "change"
    SESSION_OPEN = "session_open"
    SESSION_APPEND = "session_append"
    SESSION_KEEP_ALIVE = "session_keep_alive"
    SESSION_CLOSE = "session_close"


class Request(NamedTuple):
    """One question. `numbers` are body sizes (APPEND); or first index, wait in ms and perhaps the
    most bytes (ENTRIES); or 1 + the term that a leader is to be above, and wait in ms (LEADER). The
    payload holds bodies (APPEND), or the new leader's name or nothing (TRANSFER).

    For those of sessions see `dledger.wire.session_protocol`, for changes of the group
    `dledger.wire.change_protocol`.
    """

    request_id: int
    operation: Operation
    numbers: Sequence[int]
    payload: bytes


_OPERATIONS: Mapping[object, Operation] = {str(each): each for each in Operation}


def encode_request(request: Request) -> bytes:
    """The frame of a question."""
    request_id, operation, numbers, payload = request
    return encode_frame([request_id, operation.value, numbers], payload)


def decode_request(frame: Frame) -> Request:
    """The question in a frame. Raises MessageMalformed."""
    if len(frame.header) != 3:
        raise MessageMalformed("a request of another shape")
    request_id, name, numbers = frame.header
    operation = _OPERATIONS.get(name) if type(name) is str else None
    if operation is None:
        shown = repr(name[:40]) if isinstance(name, str) else "without a name"
        raise MessageMalformed(f"unknown operation {shown}")
    if type(request_id) is not int or not 0 <= request_id <= _HIGHEST:
        raise MessageMalformed("a request without a number")
    if not isinstance(numbers, list) or len(numbers) > MAX_BODIES:
        raise MessageMalformed(f"more than {MAX_BODIES} arguments")
    for number in numbers:
        if type(number) is not int or number < 0:
            raise MessageMalformed("an argument that is not a number")
    return Request(request_id, operation, numbers, frame.payload)


def split_bodies(request: Request) -> list[bytes]:
    """The bodies of an append. Raises MessageMalformed."""
    _, _, sizes, payload = request
    if sum(sizes) != len(payload):
        raise MessageMalformed("bodies that do not fill the payload")
    if len(sizes) == 1:
        return [payload]
    bodies, at = [], 0
    for size in sizes:
        bodies.append(payload[at : at + size])
        at += size
    return bodies


def encode_answer(request_id: int, value: object, payload: bytes = b"") -> bytes:
    """The frame of an answer."""
    return encode_frame([request_id, "ok", value], payload)


def encode_error(request_id: int, error: DLedgerError) -> bytes:
    """The frame of an error: its class, its fields, and its text for people."""
    fields: dict[str, object] = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, int | str | None) or _are_texts(value)
    }
    fields["retry_safe"] = error.retry_safe
    return encode_frame([request_id, "error", type(error).__name__, fields, str(error)])


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# --- appends ------------------------------------------------------------------------------------


def encode_appended(request_id: int, appended: Sequence[Appended]) -> bytes:
    """The frame of an answer to an append: where the entries lie, and their results.

    A result that is not made of plain values, or too large, does not come along.
    """
    rows, results, room = [], [], MAX_RESULTS_BYTES
    for _, _, pos, result in appended:
        packed = None if result is None else pack_result(result)
        if packed is None or len(packed) > room:
            rows.append(_APPENDED.pack(pos, _NO_RESULT))
        else:
            rows.append(_APPENDED.pack(pos, len(packed)))
            results.append(packed)
            room -= len(packed)
    first = (appended[0].index, appended[0].term) if appended else (0, 0)
    return encode_answer(request_id, [*first, len(rows)], b"".join(rows + results))


def decode_appended(value: object, payload: bytes) -> list[Appended]:
    """Where the entries of an append lie. Raises MessageMalformed."""
    match value:
        case [int(first), int(term), int(count)] if 0 <= count <= MAX_BODIES:
            at = count * _APPENDED.size
        case _:
            raise MessageMalformed("an append's answer of another shape")
    if at > len(payload) or min(first, term) < 0:
        raise MessageMalformed("an append's answer that does not fill its payload")
    appended = []
    rows = _APPENDED.iter_unpack(payload[:at])
    for index, (pos, size) in enumerate(rows, first):
        result = None
        if size != _NO_RESULT:
            if not 0 <= size <= len(payload) - at:
                raise MessageMalformed("a result that is not in the answer")
            result = _unpacked(payload[at : at + size])
            at += size
        appended.append(Appended(index, term, pos, result))
    if at != len(payload):
        raise MessageMalformed("an append's answer with more than its results")
    return appended


def _unpacked(packed: bytes) -> object:
    try:
        return unpack_result(packed)
    except (ValueError, TypeError) as error:
        raise MessageMalformed("a result that is not msgpack") from error


# --- who leads ----------------------------------------------------------------------------------


class Leadership(NamedTuple):
    """Who leads, as one member knows it; and the members, so that a client may ask others.

    `ready`: that member leads itself, and may serve. `index` is that of the configuration.
    """

    member: str
    leader: str | None
    term: int
    ready: bool
    index: int  # type: ignore[assignment]  # hides tuple.index
    addresses: Mapping[str, str]


def encode_leadership(request_id: int, known: Leadership) -> bytes:
    """The frame of an answer that says who leads."""
    return encode_answer(request_id, [*known[:5], dict(known.addresses)])


def decode_leadership(value: object) -> Leadership:
    """Who leads. Raises MessageMalformed."""
    match value:
        case [
            str(member),
            str() | None as leader,
            int(term),
            bool(ready),
            int(index),
            dict(addresses),
        ] if all(isinstance(part, str) for pair in addresses.items() for part in pair):
            return Leadership(member, leader, term, ready, index, addresses)
        case _:
            raise MessageMalformed("an answer to who leads of another shape")


# --- entries ------------------------------------------------------------------------------------


def encode_entries(request_id: int, entries: Iterable[Entry]) -> bytes:
    """The frame of an answer that holds entries: the first of them, MAX_ENTRIES at most."""
    entries = list(islice(entries, MAX_ENTRIES))
    rows = [[entry.index, entry.term, entry.pos, entry.magic, len(entry.body)] for entry in entries]
    return encode_answer(request_id, rows, b"".join(entry.body for entry in entries))


def decode_entries_answer(rows: object, payload: bytes) -> list[Entry]:
    """The entries of an answer, one after the other. Raises MessageMalformed."""
    if not isinstance(rows, list):
        raise MessageMalformed("an answer without entries")
    entries, at = [], 0
    for row in rows:
        if not isinstance(row, list) or len(row) != 5:
            raise MessageMalformed("an entry of another shape")
        for number in row:
            if type(number) is not int or not 0 <= number <= _HIGHEST:
                raise MessageMalformed("an entry with something else than numbers")
        index, term, pos, magic, size = row
        entries.append(Entry(index, term, pos, magic, payload[at : at + size]))
        at += size
    if at != len(payload):
        raise MessageMalformed("entries that do not fill the payload")
    if any(after.index != before.index + 1 for before, after in pairwise(entries)):
        raise MessageMalformed("entries that do not follow one another")
    return entries
