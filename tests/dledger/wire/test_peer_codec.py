"""Frames and messages between members: round trips, limits, and garbage."""

from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.config import Address
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
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.errors import MessageMalformed
from dledger.wire.codec import PROTOCOL_VERSION, decode_message, encode_message
from dledger.wire.frame import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from dledger.wire.handshake import Caller, Hello, decode_hello, encode_hello

numbers = st.integers(-1, 2**63 - 1)
phases = st.sampled_from(Phase)

THERE = Address("there.example", 20911)


@st.composite
def pushes(draw: st.DrawFn) -> PushRequest:
    phase = draw(phases.filter(lambda phase: phase is not Phase.INSTALL_SNAPSHOT))
    prev = draw(st.integers(-1, 1000))
    if phase is not Phase.APPEND:
        return PushRequest(draw(numbers), phase, prev, draw(numbers), prev, draw(numbers))
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    runs, first = [], prev + 1
    for term, count in enumerate(counts):
        runs.append(TermRun(term, first))
        first += count
    payload = draw(st.binary(min_size=1, max_size=50))
    return PushRequest(
        9, phase, prev, draw(numbers), first - 1, draw(numbers), -1, tuple(runs), payload
    )


@st.composite
def pieces(draw: st.DrawFn) -> InstallSnapshot:
    counts = st.integers(0, 1000)
    payload = draw(st.binary(max_size=50))
    offset, before, before_term = draw(counts), draw(counts), draw(counts)
    begin = LogBegin(before, before_term, draw(counts), draw(counts))
    size = offset + len(payload) + draw(counts) + 1
    offer = SnapshotOffer(
        before + draw(counts), before_term + draw(counts), draw(counts), size, begin
    )
    crc = crc32(payload) if payload else 0
    return InstallSnapshot(draw(counts), offer, offset, len(payload), crc, payload)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(VoteRequest, numbers, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(VoteResponse, numbers, st.booleans(), st.booleans(), numbers, numbers),
    pushes(),
    st.builds(PushResponse, numbers, phases, st.booleans(), *[numbers] * 6, st.booleans()),
    st.builds(Heartbeat, numbers, numbers, numbers),
    st.builds(HeartbeatResponse, numbers, numbers, numbers),
    st.builds(TimeoutNow, numbers),
    st.builds(ReadRequest, numbers, numbers),
    st.builds(ReadResponse, numbers, numbers, numbers),
    pieces(),
    st.builds(
        InstallSnapshotResponse,
        numbers,
        st.sampled_from(InstallOutcome),
        *[numbers] * 3,
        st.integers(0, 2**63 - 1),
    ),
    st.builds(Inquiry, numbers, numbers),
    st.builds(InquiryAnswer, numbers, numbers, numbers, *[st.booleans()] * 3, numbers),
    st.builds(Reminder, numbers, numbers),
    st.builds(Recall, numbers, numbers),
    st.builds(Recollection, numbers, numbers, numbers, st.booleans(), numbers),
)


def encoded(message: Message) -> bytes:
    payload = message.payload if isinstance(message, PushRequest) else b""
    return encode_message(message, payload)


@given(st.lists(messages, max_size=5), st.integers(1, 40))
def test_messages_survive_any_cutting_of_the_stream(sent: list[Message], step: int) -> None:
    stream = b"".join(map(encoded, sent))
    decoder = FrameDecoder()
    frames = []
    for at in range(0, len(stream), step):
        frames += decoder.feed(stream[at : at + step])
    assert [decode_message(frame) for frame in frames] == sent


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_garbage_raises_nothing_but_message_malformed(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    with suppress(MessageMalformed):
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                decode_message(frame)


@given(st.lists(st.one_of(st.integers(), st.text(), st.booleans(), st.none(), st.binary())))
def test_headers_of_another_shape_raise_nothing_but_message_malformed(header: list[object]) -> None:
    packed = msgpack.packb([1, *[x for x in header if not isinstance(x, int) or abs(x) < 2**63]])
    length = 2 + len(packed)
    stream = length.to_bytes(4, "big") + len(packed).to_bytes(2, "big") + packed
    (frame,) = FrameDecoder().feed(stream)
    with suppress(MessageMalformed):
        decode_message(frame)


def test_a_length_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(MessageMalformed, match="limit"):
        FrameDecoder().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    decoder = FrameDecoder()
    decoder.feed(b"\xff")
    with pytest.raises(MessageMalformed, match="limit"):
        decoder.feed(b"\xff\xff\xff")


def test_an_oversized_frame_is_not_sent() -> None:
    with pytest.raises(MessageMalformed, match="limit"):
        encode_frame([1], bytes(MAX_FRAME_BYTES))


def test_an_append_without_entries_is_malformed() -> None:
    push = PushRequest(1, Phase.APPEND, 0, 1, 1, 0, -1, (TermRun(1, 1),))
    (frame,) = FrameDecoder().feed(encode_message(push))
    with pytest.raises(MessageMalformed):
        decode_message(frame)


@pytest.mark.parametrize(
    "hello",
    [
        Hello(Caller.PEER, address=THERE),
        Hello(Caller.CLIENT, "g"),
        Hello(Caller.CLIENT, "g", "n0"),
    ],
)
def test_an_introduction_arrives_as_it_was_said(hello: Hello) -> None:
    (frame,) = FrameDecoder().feed(encode_hello(hello))
    assert decode_hello(frame) == hello


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (["hello", 1, "peer", "g", "n1", "n0"], "version 1"),
        (["hello", PROTOCOL_VERSION + 1], f"speaks {PROTOCOL_VERSION}"),
        (["hello", PROTOCOL_VERSION, "peer", "", ""], "wrong fields"),
        (["hello", PROTOCOL_VERSION, "peer", "", "", "nowhere"], "with the address 'nowhere'"),
        (["hello", PROTOCOL_VERSION, "peer", "", "", ""], "without an address"),
        (["hello", PROTOCOL_VERSION, "friend", "g", "n0", ""], "unknown kind"),
        ([1, 2, 3], "not a hello"),
        (["hello"], "not a hello"),
    ],
)
def test_an_introduction_that_cannot_be_read_says_why(header: list[object], reason: str) -> None:
    (frame,) = FrameDecoder().feed(encode_frame(header))
    with pytest.raises(MessageMalformed, match=reason):
        decode_hello(frame)


GOOD_PIECE = [12, 5, 90, 4, 123, 1000, 60, 3, 77, 4096, 10, 2, crc32(b"ab")]


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (1, -1, "impossible position"),  # term
        (2, 59, "before the beginning of its log"),  # the snapshot lies before its log
        (3, 2, "before the beginning of its log"),  # and so does its term
        (4, -1, "impossible position"),  # chain
        (5, 11, "bytes 10+2"),  # the piece ends behind the file
        (6, -1, "impossible position"),  # the log begins nowhere
        (9, -1, "impossible position"),  # position
        (10, -1, "bytes -1"),  # offset
        (11, 3, "length or its CRC"),
        (11, 2.0, "instead of a number"),
        (12, 1, "length or its CRC"),
        (10, 2**63 - 1, "bytes"),
    ],
)
def test_a_piece_of_a_snapshot_is_checked_field_by_field(
    at: int, value: object, problem: str
) -> None:
    header: list[object] = [*GOOD_PIECE]
    [frame] = FrameDecoder().feed(encode_frame(header, b"ab"))
    assert isinstance(decode_message(frame), InstallSnapshot)
    header[at] = value
    [frame] = FrameDecoder().feed(encode_frame(header, b"ab"))
    with pytest.raises(MessageMalformed, match=problem.replace("+", r"\+")):
        decode_message(frame)


def test_a_piece_of_a_snapshot_of_more_than_256_kib_is_refused() -> None:
    large = bytes(256 * 1024 + 1)
    header: list[object] = [*GOOD_PIECE]
    header[5], header[11], header[12] = 1 << 30, len(large), crc32(large)
    [frame] = FrameDecoder().feed(encode_frame(header, large))
    with pytest.raises(MessageMalformed, match="of a snapshot of"):
        decode_message(frame)


def test_a_push_cannot_install_a_snapshot() -> None:
    push = PushRequest(1, Phase.INSTALL_SNAPSHOT, 0, 0, 0, 0)
    [frame] = FrameDecoder().feed(encode_message(push))
    with pytest.raises(MessageMalformed, match="cannot install"):
        decode_message(frame)
