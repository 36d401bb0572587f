"""Requests of clients that watch a state machine, and the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgpack

from dledger.changes import (
    MAX_PATH_BYTES,
    MAX_PATH_PARTS,
    PackedValue,
    Path,
    checked_path,
    packed_path,
)
from dledger.errors import MessageMalformed
from dledger.short_repr import short_repr
from dledger.watch_errors import WatchInvalid, WatchTooLarge
from dledger.wire.client_protocol import HIGHEST, Operation, Request, encode_answer

# The most bytes of changes in one answer, unless a single entry has more.
MAX_CHANGES_BYTES = 1024 * 1024

# The state under a path is one answer: a frame holds 5 MiB, and a member makes it in one step of
# its loop, in some 35 ms for as many small values.
MAX_STATE_BYTES = 4 * 1024 * 1024
MAX_STATE_VALUES = 16_000

_CHANGES, _STATE = 0, 1


class ValueSet(NamedTuple):
    """An entry gave a path a value. `more`: further changes of the same entry follow."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    path: Path
    value: object
    more: bool = False

    def __repr__(self) -> str:
        return short_repr(self)


class ValueDeleted(NamedTuple):
    """An entry removed a path, and all paths that begin with it.

    The path may be a prefix of the watched one. `more`: further changes of the same entry follow.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    path: Path
    more: bool = False

    def __repr__(self) -> str:
        return short_repr(self)


class WatchedState(NamedTuple):
    """The whole state under the watched path, after the entry at `index`: values by their paths.

    It replaces everything received before. A watch without `after` begins with it, and it stands
    for changes that are not kept any more.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    values: Mapping[Path, object]

    def __repr__(self) -> str:
        return short_repr(self)


WatchEvent = ValueSet | ValueDeleted | WatchedState


class Watch(NamedTuple):
    """A request for changes of a path after an entry; with None, first for the present state."""

    path: Path
    after: int | None
    wait_ms: int


class Watched(NamedTuple):
    """The answer.

    Attributes:
        events: whole entries of changes, or the state.
        upto: there are no other changes up to this entry.
        leader: the leader that the member knows.
    """

    events: Sequence[WatchEvent]
    upto: int
    leader: str | None


def encode_watch(watch: Watch) -> tuple[Operation, Sequence[int], bytes]:
    """Encode a watch as the fields of a request. Raises WatchInvalid."""
    path, after, wait_ms = watch
    try:
        if after is not None and after > HIGHEST:
            raise ValueError(f"there can be no entry {after}")
        payload = packed_path(checked_path(path))
    except (TypeError, ValueError, OverflowError) as error:
        raise WatchInvalid(str(error)) from None
    return Operation.WATCH, [0 if after is None else max(after, -1) + 2, wait_ms], payload


def decode_watch(request: Request) -> Watch:
    """Decode a watch. Raises MessageMalformed."""
    match request.numbers:
        case [after, wait_ms] if len(request.payload) <= MAX_PATH_BYTES:
            path = _path(_unpacked(request.payload))
            return Watch(path, after - 2 if after else None, wait_ms)
        case _:
            raise MessageMalformed("a watch takes an entry, a wait in ms, and a path")


def encode_changes(request_id: int, rows: Sequence[bytes], upto: int, leader: str | None) -> bytes:
    """Encode an answer with changes, each as `Change.row`."""
    return encode_answer(request_id, [_CHANGES, upto, leader], b"".join(rows))


def encode_state(
    request_id: int,
    path: Path,
    index: int,
    values: Iterable[tuple[Path, object]],
    leader: str | None,
) -> bytes:
    """Encode an answer with the state under a path. Raises WatchInvalid, WatchTooLarge."""
    parts: list[bytes] = []
    size = 0
    try:
        for count, (each, value) in enumerate(values):
            if count >= MAX_STATE_VALUES:
                raise WatchTooLarge(shown_path(path), MAX_STATE_VALUES, "values")
            name = packed_path(checked_path(each))
            packed = value if isinstance(value, PackedValue) else msgpack.packb(value)
            parts += name, packed
            size += len(name) + len(packed)
            if size > MAX_STATE_BYTES:
                raise WatchTooLarge(shown_path(path), MAX_STATE_BYTES, "bytes")
    except (TypeError, ValueError, OverflowError) as error:
        raise WatchInvalid(f"the state under {shown_path(path)} is not plain ({error})") from None
    return encode_answer(request_id, [_STATE, index, leader], b"".join(parts))


def decode_watched(watch: Watch, value: object, payload: bytes) -> Watched:
    """Decode the answer to a watch. Raises MessageMalformed."""
    match value:
        case [0 | 1 as kind, int(upto), str() | None as leader] if -1 <= upto <= HIGHEST:
            pass
        case _:
            raise MessageMalformed("an answer to a watch with wrong fields")
    parts = _all_unpacked(payload)
    if kind == _STATE:
        paths = [_path(part) for part in parts[::2]]
        if len(parts) % 2:
            raise MessageMalformed("a state with a path without a value")
        values = dict(zip(paths, parts[1::2], strict=True))
        return Watched([WatchedState(upto, values)], upto, leader)
    if watch.after is None or upto < watch.after:
        raise MessageMalformed("an answer to another watch")
    rows = [_change(part) for part in parts]
    events: list[WatchEvent] = []
    before = watch.after + 1
    for at, event in enumerate(rows):
        if not before <= event.index <= upto:
            raise MessageMalformed(f"a change of entry {event.index} out of its place")
        before = event.index
        more = at + 1 < len(rows) and rows[at + 1].index == before
        events.append(event._replace(more=more))
    return Watched(events, upto, leader)


def shown_path(path: Path) -> str:
    """Return a path shortened for an error's text."""
    text = repr(path)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


_SHOWN_CHARACTERS = 100


def _change(row: object) -> ValueSet | ValueDeleted:
    match row:
        case [int(index), path, value]:
            return ValueSet(index, _path(path), value)
        case [int(index), path]:
            return ValueDeleted(index, _path(path))
        case _:
            raise MessageMalformed("a change with wrong fields")


def _path(parts: object) -> Path:
    if not isinstance(parts, list):
        raise MessageMalformed("a path that is not a list")
    try:
        return checked_path(parts)
    except (TypeError, ValueError) as error:
        raise MessageMalformed(str(error)) from error


def _unpacked(packed: bytes) -> object:
    try:
        return msgpack.unpackb(packed, max_array_len=MAX_PATH_PARTS, max_map_len=0, max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MessageMalformed("a path that is not msgpack") from error


def _all_unpacked(packed: bytes) -> list[object]:
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(len(packed), 1))
    values: list[object] = []
    end = 0  # of the last whole value
    try:
        unpacker.feed(packed)
        for value in unpacker:
            values.append(value)
            end = unpacker.tell()
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MessageMalformed("an answer to a watch that is not msgpack") from error
    if end != len(packed):
        raise MessageMalformed("an answer to a watch that is cut short")
    return values
