"""Frames and messages between members: round trips, limits, and garbage."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.codec import PROTOCOL_VERSION, decode_message, encode_message
from dledger.config import Address
from dledger.core.ledger_view import TermRun
from dledger.errors import MessageMalformed
from dledger.frame import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from dledger.handshake import Caller, Hello, decode_hello, encode_hello
from dledger.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

numbers = st.integers(-1, 2**63 - 1)
phases = st.sampled_from(Phase)

THERE = Address("there.example", 20911)


@st.composite
def pushes(draw: st.DrawFn) -> PushRequest:
    phase = draw(phases)
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


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(VoteRequest, numbers, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(VoteResponse, numbers, st.booleans(), st.booleans()),
    pushes(),
    st.builds(PushResponse, numbers, phases, st.booleans(), *[numbers] * 6),
    st.builds(Heartbeat, numbers, numbers, numbers),
    st.builds(HeartbeatResponse, numbers, numbers, numbers),
    st.builds(TimeoutNow, numbers),
    st.builds(ReadRequest, numbers, numbers),
    st.builds(ReadResponse, numbers, numbers, numbers),
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
        (["hello", PROTOCOL_VERSION, "peer", "", ""], "another shape"),
        (["hello", PROTOCOL_VERSION, "peer", "", "", "nowhere"], "listens at 'nowhere'"),
        (["hello", PROTOCOL_VERSION, "peer", "", "", ""], "where it listens"),
        (["hello", PROTOCOL_VERSION, "friend", "g", "n0", ""], "unknown kind"),
        ([1, 2, 3], "not a hello"),
        (["hello"], "not a hello"),
    ],
)
def test_an_introduction_that_cannot_be_read_says_why(header: list[object], reason: str) -> None:
    (frame,) = FrameDecoder().feed(encode_frame(header))
    with pytest.raises(MessageMalformed, match=reason):
        decode_hello(frame)
