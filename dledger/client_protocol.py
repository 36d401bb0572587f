"""What clients ask a node, over the same frames as peers: [request id, operation, arguments]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from dledger.entry import Entry
from dledger.errors import MessageMalformed
from dledger.frame import Frame, encode_frame, shown

# Bodies in one append request; the frame limit bounds their bytes.
MAX_BODIES = 4096

# What one answer to `entries` holds at most, besides a single larger entry.
MAX_ENTRIES_BYTES = 1024 * 1024
# And how many entries: a row takes 38 bytes at most, and all rows stand in one header.
MAX_ENTRIES = 1_500

# How long a node may hold an `entries` request for an entry that does not exist yet.
MAX_WAIT_MS = 30_000


class Operation(StrEnum):
    """What a client can ask."""

    STATUS = "status"
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
    """One question. `numbers` are body sizes (APPEND), or first index and wait (ENTRIES); the
    payload holds bodies (APPEND), or the new leader's name or nothing (TRANSFER).

    For those of sessions see `dledger.session_protocol`, for changes of the group
    `dledger.change_protocol`.
    """

    request_id: int
    operation: Operation
    numbers: Sequence[int]
    payload: bytes


def encode_request(request: Request) -> bytes:
    """The frame of a question."""
    header = [request.request_id, str(request.operation), list(request.numbers)]
    return encode_frame(header, request.payload)


def decode_request(frame: Frame) -> Request:
    """The question in a frame. Raises MessageMalformed."""
    if len(frame.header) != 3:
        raise MessageMalformed("a request of another shape")
    request_id, operation, numbers = frame.header
    known = isinstance(operation, str) and operation in tuple(Operation)
    if type(request_id) is not int or not known:
        raise MessageMalformed(f"unknown operation {shown(operation)}")
    if not isinstance(numbers, list) or len(numbers) > MAX_BODIES:
        raise MessageMalformed(f"more than {MAX_BODIES} arguments")
    checked = [number for number in numbers if type(number) is int and number >= 0]
    if len(checked) != len(numbers):
        raise MessageMalformed("an argument that is not a number")
    return Request(request_id, Operation(str(operation)), checked, frame.payload)


def split_bodies(request: Request) -> list[bytes]:
    """The bodies of an append. Raises MessageMalformed."""
    if sum(request.numbers) != len(request.payload):
        raise MessageMalformed("bodies that do not fill the payload")
    bodies, at = [], 0
    for size in request.numbers:
        bodies.append(request.payload[at : at + size])
        at += size
    return bodies


def encode_answer(request_id: int, value: object, payload: bytes = b"") -> bytes:
    """The frame of an answer."""
    return encode_frame([request_id, "ok", value], payload)


def encode_error(request_id: int, name: str, fields: dict[str, object], text: str) -> bytes:
    """The frame of an error: its class, its fields, and its text for people."""
    return encode_frame([request_id, "error", name, fields, text])


def encode_entries(request_id: int, entries: Iterable[Entry]) -> bytes:
    """The frame of an answer that holds entries: the first of them, MAX_ENTRIES at most."""
    entries = list(islice(entries, MAX_ENTRIES))
    rows = [[entry.index, entry.term, entry.pos, entry.magic, len(entry.body)] for entry in entries]
    return encode_answer(request_id, rows, b"".join(entry.body for entry in entries))


def decode_entries_answer(rows: object, payload: bytes) -> list[Entry]:
    """The entries of an answer. Raises MessageMalformed."""
    if not isinstance(rows, list):
        raise MessageMalformed("an answer without entries")
    entries, at = [], 0
    for row in rows:
        if not isinstance(row, list) or len(row) != 5:
            raise MessageMalformed("an entry of another shape")
        if not all(type(number) is int and number >= 0 for number in row):
            raise MessageMalformed("an entry of something else than numbers")
        index, term, pos, magic, size = row
        entries.append(Entry(index, term, pos, magic, payload[at : at + size]))
        at += size
    if at != len(payload):
        raise MessageMalformed("entries that do not fill the payload")
    return entries
