"""Requests of clients to a node, in the frames that peers use: [request id, operation, arguments].

A client may have many requests in flight; answers come in any order, each with the id of its
request.
"""

from __future__ import annotations

import operator
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

# The most bytes of entries in one answer to `entries`, except for a single larger entry.
MAX_ENTRIES_BYTES = 1024 * 1024
# The most entries in it: a row takes up to 38 bytes, and all rows are in one header.
MAX_ENTRIES = 1_500

# How long a node may hold a request that waits for a future entry or a future leader.
MAX_WAIT_MS = 30_000

# Open requests of one connection, and their bytes: enough to fill a sync several times. A node
# stops reading from the connection beyond this; a client keeps within half of it.
MAX_OPEN_REQUESTS = 4_096
MAX_OPEN_BYTES = 32 * 1024 * 1024

# Results in the answer to one append; results beyond this are left out.
MAX_RESULTS_BYTES = 1024 * 1024

# Indexes, terms and positions are 64-bit in the file format.
HIGHEST = 2**63 - 1

# An error shows this much of the name of an unknown operation.
_SHOWN_CHARACTERS = 40

# For each appended entry: its position, and the size of its result, -1 for none.
_APPENDED = struct.Struct(">qi")
_NO_RESULT = -1


class Operation(StrEnum):
    STATUS = "status"
    LEADER = "leader"
    APPEND = "append"
    ENTRIES = "entries"
    QUERY = "query"
    WATCH = "watch"
    TRANSFER = "transfer"
    SNAPSHOT = "snapshot"
    CHANGE = "change"
    SESSION_OPEN = "session_open"
    SESSION_APPEND = "session_append"
    SESSION_KEEP_ALIVE = "session_keep_alive"
    SESSION_CLOSE = "session_close"


# The operations by their effect on the group. Each is in one of these sets.
READING = frozenset(
    (Operation.STATUS, Operation.LEADER, Operation.ENTRIES, Operation.QUERY, Operation.WATCH)
)
APPENDING = frozenset(
    (
        Operation.APPEND,
        Operation.SESSION_OPEN,
        Operation.SESSION_APPEND,
        Operation.SESSION_KEEP_ALIVE,
        Operation.SESSION_CLOSE,
    )
)
ADMINISTERING = frozenset((Operation.TRANSFER, Operation.SNAPSHOT, Operation.CHANGE))

# Operations of later versions. A member of an earlier version closes the connection on such a
# request, so a client first checks that this field of the member's status names the operation.
ADDED = frozenset((Operation.QUERY, Operation.WATCH))
OPERATIONS_FIELD = "operations"


class Request(NamedTuple):
    """One request of a client.

    `numbers` are the body sizes (APPEND); or the first index, the wait in ms and optionally the
    most bytes (ENTRIES); or 1 + a term, which the leader's term must exceed, and the wait in ms
    (LEADER). The payload holds the bodies (APPEND), or the new leader's name or nothing (TRANSFER).

    `dledger.wire.session_protocol` defines the requests of sessions,
    `dledger.wire.change_protocol` requests that change the group, `dledger.wire.query_protocol` and
    `dledger.wire.watch_protocol` requests that read the state machine.
    """

    request_id: int
    operation: Operation
    numbers: Sequence[int]
    payload: bytes


class RequestUnknown(MessageMalformed):
    """A request of a later version: the node answers it, and keeps the connection."""

    def __init__(self, request_id: int, operation: str) -> None:
        self.request_id = request_id
        self.operation = operation
        super().__init__(f"unknown operation {operation!r}")


_OPERATIONS: Mapping[object, Operation] = {str(each): each for each in Operation}


def encode_request(request: Request) -> bytes:
    request_id, operation, numbers, payload = request
    return encode_frame([request_id, operation.value, numbers], payload)


def decode_request(frame: Frame) -> Request:
    """Decode the request in a frame. Raises MessageMalformed, RequestUnknown."""
    if len(frame.header) != 3:
        raise MessageMalformed("a request with wrong fields")
    request_id, name, numbers = frame.header
    if type(request_id) is not int or not 0 <= request_id <= HIGHEST:
        raise MessageMalformed("a request without a number")
    if type(name) is not str:
        raise MessageMalformed("an operation without a name")
    operation = _OPERATIONS.get(name)
    if operation is None:
        raise RequestUnknown(request_id, name[:_SHOWN_CHARACTERS])
    if not isinstance(numbers, list) or len(numbers) > MAX_BODIES:
        raise MessageMalformed(f"more than {MAX_BODIES} arguments")
    for number in numbers:
        if type(number) is not int or number < 0:
            raise MessageMalformed("an argument that is not a number")
    return Request(request_id, operation, numbers, frame.payload)


def split_bodies(request: Request) -> list[bytes]:
    """Split the payload of an append into its bodies. Raises MessageMalformed."""
    _, _, sizes, payload = request
    if not sizes:
        raise MessageMalformed("an append without bodies")
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
    return encode_frame([request_id, "ok", value], payload)


def encode_error(request_id: int, error: DLedgerError) -> bytes:
    """Encode the frame of an error: its class, its fields, and its text."""
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
    """Encode the answer to an append: the positions of the entries, and their results.

    A result that is too large or not made of plain values is left out.
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
    """Decode the answer to an append. Raises MessageMalformed."""
    match value:
        case [int(first), int(term), int(count)] if 0 <= count <= MAX_BODIES:
            at = count * _APPENDED.size
        case _:
            raise MessageMalformed("an answer to an append with wrong fields")
    if at > len(payload) or min(first, term) < 0:
        raise MessageMalformed("an answer to an append that does not fill its payload")
    appended = []
    rows = _APPENDED.iter_unpack(payload[:at])
    for index, (pos, size) in enumerate(rows, first):
        result = None
        if size != _NO_RESULT:
            if not 0 <= size <= len(payload) - at:
                raise MessageMalformed("the answer to an append lacks a result")
            result = _unpacked(payload[at : at + size])
            at += size
        appended.append(Appended(index, term, pos, result))
    if at != len(payload):
        raise MessageMalformed("an answer to an append with more bytes than its results")
    return appended


def _unpacked(packed: bytes) -> object:
    try:
        return unpack_result(packed)
    except TypeError:  # a dict has a tuple as a key: left out, as it is not made of plain values
        return None
    except ValueError as error:
        raise MessageMalformed("a result that is not msgpack") from error


# --- who leads ----------------------------------------------------------------------------------


class Leadership(NamedTuple):
    """The leader, as one member knows it, and the members, so that a client may ask others.

    `ready`: the member that answers is the leader, and may serve. `index` is the configuration's.
    """

    member: str
    leader: str | None
    term: int
    ready: bool
    index: int  # type: ignore[assignment]  # hides tuple.index
    addresses: Mapping[str, str]


def encode_leadership(request_id: int, known: Leadership) -> bytes:
    return encode_answer(request_id, [*known[:5], dict(known.addresses)])


def decode_leadership(value: object) -> Leadership:
    """Decode the answer that names the leader. Raises MessageMalformed."""
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
            raise MessageMalformed("an answer about the leader with wrong fields")


# --- entries ------------------------------------------------------------------------------------


def askable(index: int) -> int:
    """Return the nearest index that a request can name: a node ends the connection over others.

    Raises TypeError.
    """
    return min(max(int(operator.index(index)), 0), HIGHEST)


def encode_entries(request_id: int, entries: Iterable[Entry]) -> bytes:
    """Encode an answer with at most the first MAX_ENTRIES of these entries."""
    entries = list(islice(entries, MAX_ENTRIES))
    rows = [[entry.index, entry.term, entry.pos, entry.magic, len(entry.body)] for entry in entries]
    return encode_answer(request_id, rows, b"".join(entry.body for entry in entries))


def decode_entries_answer(rows: object, payload: bytes) -> list[Entry]:
    """Decode the adjacent entries of an answer. Raises MessageMalformed."""
    if not isinstance(rows, list):
        raise MessageMalformed("an answer without entries")
    entries, at = [], 0
    for row in rows:
        if not isinstance(row, list) or len(row) != 5:
            raise MessageMalformed("an entry with wrong fields")
        for number in row:
            if type(number) is not int or not 0 <= number <= HIGHEST:
                raise MessageMalformed("an entry with a field that is not a number")
        index, term, pos, magic, size = row
        entries.append(Entry(index, term, pos, magic, payload[at : at + size]))
        at += size
    if at != len(payload):
        raise MessageMalformed("entries that do not fill the payload")
    if any(after.index != before.index + 1 for before, after in pairwise(entries)):
        raise MessageMalformed("entries that do not follow one another")
    return entries
