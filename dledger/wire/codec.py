"""Encodes peer messages as frame headers, and decodes them. Decoding checks every field.

The first number of a header is 32 times the number of the channel (see
`dledger.wire.channel_protocol`) plus the kind of message. Kinds from 10 on hold heartbeats, or
answers to heartbeats, of many channels.

Members of earlier versions close the channel on a kind that they do not know, but skip frames that
begin with a negative number. So the messages of `_NEWER_KINDS` are sent behind NEWER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import cast
from zlib import crc32

from dledger.core.ledger_view import TermRun
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    Recall,
    Recollection,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, LogBegin, SnapshotOffer
from dledger.errors import MessageMalformed
from dledger.wire.frame import Frame, encode_frame, shown

# 2: a peer names its own address, and members of many groups share one connection.
# 3: the frame that opens a channel carries the group's identity.
PROTOCOL_VERSION = 3

SHARED_HEARTBEATS, SHARED_RESPONSES = 10, 11

# Stands before the number of a message that was added after PROTOCOL_VERSION 3.
NEWER = -3
_NEWER_KINDS = (Recall, Recollection)

# The kind takes this many low bits of the number, the channel the bits above.
CHANNEL_SHIFT = 5
_KIND_MASK = (1 << CHANNEL_SHIFT) - 1

# Indexes and terms are 64-bit in the file format, and -1 stands for "none".
_LOWEST, _HIGHEST = -1, 2**63 - 1

_PHASES = {phase.value: phase for phase in Phase}


def encode_message(message: Message, payload: bytes = b"", channel: int = 0) -> bytes:
    """Encode the frame of one message. `payload` is a push's raw entries."""
    number = channel << CHANNEL_SHIFT
    if isinstance(message, PushRequest):
        runs = [part for run in message.runs for part in run]
        return encode_frame([number | _KINDS[PushRequest], *message[:7], runs], payload)
    if isinstance(message, InstallSnapshot):
        term, (*place, begin), offset, length, crc, piece = message
        kind = number | _KINDS[InstallSnapshot]
        return encode_frame([kind, term, *place, *begin, offset, length, crc], piece)
    header = [number | _KINDS[type(message)], *message]
    return encode_frame([NEWER, *header] if isinstance(message, _NEWER_KINDS) else header)


def behind_newer(frame: Frame) -> Frame:
    """Return the frame behind NEWER. Raises MessageMalformed."""
    if len(frame.header) < 2:
        raise MessageMalformed("a message without a kind")
    return Frame(frame.header[1:], frame.payload)


def decode_message(frame: Frame) -> Message:
    """Decode the message in a frame. Raises MessageMalformed."""
    if frame.header[0] == NEWER:
        frame = behind_newer(frame)
    number, *fields = frame.header
    decode = _DECODERS.get(number & _KIND_MASK) if type(number) is int else None
    if decode is None:
        raise MessageMalformed(f"unknown kind {shown(number)}")
    return decode(fields, frame.payload)


def encode_shared(kind: int, numbers: Sequence[int]) -> bytes:
    """Encode many heartbeats, or many answers: for each the channel, then its fields."""
    return encode_frame([kind, *numbers])


def decode_shared_heartbeats(frame: Frame) -> list[tuple[int, Heartbeat]]:
    """Decode heartbeats and their channels. Raises MessageMalformed."""
    rows = _rows(frame, len(Heartbeat._fields))
    return [(channel, Heartbeat(*fields)) for channel, *fields in rows]


def decode_shared_responses(frame: Frame) -> list[tuple[int, HeartbeatResponse]]:
    """Decode answers to heartbeats and their channels. Raises MessageMalformed."""
    rows = _rows(frame, len(HeartbeatResponse._fields))
    return [(channel, HeartbeatResponse(*fields)) for channel, *fields in rows]


def _rows(frame: Frame, fields: int) -> Iterable[tuple[int, ...]]:
    if not set(map(type, frame.header)) <= {int}:
        raise MessageMalformed("heartbeats with a field that is not a number")
    numbers, columns = cast("list[int]", frame.header[1:]), fields + 1
    if not numbers or len(numbers) % columns:
        raise MessageMalformed("heartbeats with missing fields")
    if min(numbers) < _LOWEST or max(numbers) > _HIGHEST:
        raise MessageMalformed("heartbeats with a number out of range")
    return zip(*(numbers[column::columns] for column in range(columns)), strict=True)


def _numbers(fields: Sequence[object], count: int) -> list[int]:
    if len(fields) != count:
        raise MessageMalformed(f"{len(fields)} fields instead of {count}")
    for field in fields:
        if type(field) is not int or not _LOWEST <= field <= _HIGHEST:
            raise _no_number(field)
    return cast("list[int]", fields)


def _number(field: object) -> int:
    if type(field) is not int or not _LOWEST <= field <= _HIGHEST:
        raise _no_number(field)
    return field


def _no_number(field: object) -> MessageMalformed:
    return MessageMalformed(f"{shown(field)} instead of a number")


def _flag(field: object) -> bool:
    if type(field) is not bool:
        raise MessageMalformed(f"{shown(field)} instead of true or false")
    return field


def _phase(field: object) -> Phase:
    phase = _PHASES.get(_number(field))
    if phase is None:
        raise MessageMalformed(f"unknown phase {shown(field)}")
    return phase


def _vote_request(fields: list[object], _: bytes) -> VoteRequest:
    if len(fields) != len(VoteRequest._fields):
        raise MessageMalformed("a vote request with wrong fields")
    term, last_index, last_term = _numbers(fields[:3], 3)
    return VoteRequest(term, last_index, last_term, _flag(fields[3]), _flag(fields[4]))


def _vote_response(fields: list[object], _: bytes) -> VoteResponse:
    if len(fields) != len(VoteResponse._fields):
        raise MessageMalformed("a vote response with wrong fields")
    committed, committed_term = _numbers(fields[3:], 2)
    return VoteResponse(
        _number(fields[0]), _flag(fields[1]), _flag(fields[2]), committed, committed_term
    )


def _push_request(fields: list[object], payload: bytes) -> PushRequest:
    if len(fields) != 8 or not isinstance(fields[7], list):
        raise MessageMalformed("a push with wrong fields")
    term, prev_index, prev_term, last_index, committed, next_term = _numbers(
        [fields[0], *fields[2:7]], 6
    )
    phase = _phase(fields[1])
    if phase is Phase.INSTALL_SNAPSHOT:
        raise MessageMalformed("a push cannot install a snapshot")
    runs = _runs(fields[7], prev_index, last_index)
    if (phase is Phase.APPEND) != bool(payload) or (phase is not Phase.APPEND and runs):
        raise MessageMalformed(f"a {phase.name} push with {len(payload)} bytes of entries")
    return PushRequest(
        term, phase, prev_index, prev_term, last_index, committed, next_term, runs, payload
    )


def _runs(field: list[object], prev_index: int, last_index: int) -> tuple[TermRun, ...]:
    if not field:
        return ()
    numbers = _numbers(field, len(field))
    if len(numbers) == 2 and numbers[1] == prev_index + 1 <= last_index:
        return (TermRun(numbers[0], numbers[1]),)
    runs = tuple(map(TermRun, numbers[0::2], numbers[1::2]))
    ordered = all(
        earlier.term < later.term and earlier.first_index < later.first_index
        for earlier, later in pairwise(runs)
    )
    if (
        len(numbers) % 2
        or not ordered
        or runs[0].first_index != prev_index + 1
        or runs[-1].first_index > last_index
    ):
        raise MessageMalformed("term runs that do not cover the push")
    return runs


def _push_response(fields: list[object], _: bytes) -> PushResponse:
    if len(fields) != len(PushResponse._fields):
        raise MessageMalformed("a push response with wrong fields")
    term, index, match, verified, last, hint_index, hint_term = _numbers(
        [fields[0], *fields[3:-1]], 7
    )
    phase, ok, proven = _phase(fields[1]), _flag(fields[2]), _flag(fields[9])
    return PushResponse(
        term, phase, ok, index, match, verified, last, hint_index, hint_term, proven
    )


def _install_snapshot(fields: list[object], payload: bytes) -> InstallSnapshot:
    term, index, snapshot_term, chain, size, *place, offset, length, crc = _numbers(fields, 12)
    begin = LogBegin(*place)
    offer = SnapshotOffer(index, snapshot_term, chain, size, begin)
    if min(term, begin.before_index, begin.before_term, begin.pos, offer.term, offer.chain) < 0:
        raise MessageMalformed("a snapshot with an impossible position")
    if offer.index < begin.before_index or offer.term < begin.before_term or offer.size < 1:
        raise MessageMalformed("a snapshot of an entry before the beginning of its log")
    if not 0 <= offset <= offset + length <= offer.size or length > PIECE_BYTES:
        raise MessageMalformed(f"bytes {offset}+{length} of a snapshot of {offer.size}")
    if len(payload) != length or (length and crc32(payload) != crc):
        raise MessageMalformed("a piece of a snapshot that does not match its length or its CRC")
    return InstallSnapshot(term, offer, offset, length, crc, payload)


def _install_snapshot_response(fields: list[object], _: bytes) -> InstallSnapshotResponse:
    term, outcome, *numbers = _numbers(fields, 6)
    if numbers[-1] < 0:
        raise MessageMalformed(f"{numbers[-1]} bytes of a snapshot received")
    try:
        return InstallSnapshotResponse(term, InstallOutcome(outcome), *numbers)
    except ValueError as error:
        raise MessageMalformed(f"unknown outcome {outcome} of a snapshot") from error


def _inquiry_answer(fields: list[object], _: bytes) -> InquiryAnswer:
    if len(fields) != len(InquiryAnswer._fields):
        raise MessageMalformed("an answer to an inquiry with wrong fields")
    term, number, last_index, voters = _numbers([*fields[:3], fields[6]], 4)
    is_new, proven, leads = map(_flag, fields[3:6])
    return InquiryAnswer(term, number, last_index, is_new, proven, leads, voters)


def _recollection(fields: list[object], _: bytes) -> Recollection:
    if len(fields) != len(Recollection._fields):
        raise MessageMalformed("a recollection with wrong fields")
    term, number, promised, held = _numbers([*fields[:3], fields[4]], 4)
    return Recollection(term, number, promised, _flag(fields[3]), held)


Decode = Callable[[list[object], bytes], Message]


def _numbers_of(kind: type[Message]) -> tuple[type[Message], Decode]:
    """Return the decoder of a message whose fields are all numbers."""
    make: Callable[..., Message] = kind
    count = len(kind._fields)
    return kind, lambda fields, _: make(*_numbers(fields, count))


# The messages by their numbers. 10 and 11 are SHARED_HEARTBEATS and SHARED_RESPONSES.
_MESSAGES: dict[int, tuple[type[Message], Decode]] = {
    1: (VoteRequest, _vote_request),
    2: (VoteResponse, _vote_response),
    3: (PushRequest, _push_request),
    4: (PushResponse, _push_response),
    5: _numbers_of(Heartbeat),
    6: _numbers_of(HeartbeatResponse),
    7: _numbers_of(TimeoutNow),
    8: _numbers_of(ReadRequest),
    9: _numbers_of(ReadResponse),
    12: (InstallSnapshot, _install_snapshot),
    13: (InstallSnapshotResponse, _install_snapshot_response),
    14: _numbers_of(Inquiry),
    15: (InquiryAnswer, _inquiry_answer),
    16: _numbers_of(Reminder),
    17: _numbers_of(Recall),
    18: (Recollection, _recollection),
}
_KINDS: dict[type[Message], int] = {message: kind for kind, (message, _) in _MESSAGES.items()}
_DECODERS = {kind: decode for kind, (_, decode) in _MESSAGES.items()}
