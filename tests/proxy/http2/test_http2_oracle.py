"""Our connection beside that of the library h2: both get the same bytes, and react alike."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.http2.events import Received, Requested, Reset
from proxy.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    ErrorCode,
    FrameType,
    frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.limits import Limits
from tests.examples import examples
from tests.proxy.http2.peer import CALL, Pair, block, data, frames_of, headers

# Where RFC 9113 lets a server choose, ours and h2 choose differently: both are shown as the same.
# A mistake in a stream that has ended may end the stream or the connection, with either code.
_ALIKE = {"PROTOCOL_ERROR", "STREAM_CLOSED"}


# Our settings, which h2 sends before anything else.
GREETING = "SETTINGS 0 "


class Oracle:
    """h2 as a server, with the windows of ours."""

    def __init__(self, limits: Limits) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config)
        values = {
            h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: limits.max_streams,
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
        self._h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(limits.connection_window_bytes - 65535)
        self._h2.data_to_send()
        self.told: list[str] = []
        self.seen: list[str] = []
        self.is_over = False

    def send(self, sent: bytes) -> None:
        if self.is_over:
            return
        try:
            events: list[Any] = self._h2.receive_data(sent)
        except h2.exceptions.ProtocolError:
            self.is_over = True
            events = []
        for event in events:
            match event:
                case h2.events.RequestReceived():
                    self.seen.append(f"request {event.stream_id}")
                case h2.events.DataReceived():
                    if event.data:
                        self.seen.append(f"data {event.stream_id} {event.data.hex()}")
                case h2.events.StreamEnded():
                    self.seen.append(f"end {event.stream_id}")
                case h2.events.StreamReset() if event.remote_reset:
                    self.seen.append(f"reset {event.stream_id}")
        self.told += told(self._h2.data_to_send())


def told(sent: bytes) -> list[str]:
    """What a peer is told, but for windows, of which each server has its own way."""
    found = []
    for each in frames_of(sent):
        if each.kind == FrameType.GOAWAY:
            found.append("GOAWAY")
        elif each.kind == FrameType.RST_STREAM:
            code = ErrorCode(each.number).name
            found.append(f"RST {each.stream_id} {'ENDED' if code in _ALIKE else code}")
        elif each.kind != FrameType.WINDOW_UPDATE:
            found.append(f"{FrameType(each.kind).name} {each.flags} {each.payload.hex()}")
    return found


class Ours:
    def __init__(self, limits: Limits) -> None:
        self.pair = Pair(limits)
        self.pair.connection = type(self.pair.connection)(limits, self.pair.now)
        self.told: list[str] = []
        self.seen: list[str] = []

    def send(self, sent: bytes) -> None:
        for event in self.pair.send(sent) if not self.pair.connection.is_over else ():
            match event:
                case Requested(stream, _):
                    self.seen.append(f"request {stream.stream_id}")
                    if stream.has_remote_ended:
                        self.seen.append(f"end {stream.stream_id}")
                case Received(stream, part):
                    if part:
                        self.seen.append(f"data {stream.stream_id} {part.hex()}")
                    if stream.has_remote_ended:
                        self.seen.append(f"end {stream.stream_id}")
                case Reset(stream, "the client cancelled it"):
                    self.seen.append(f"reset {stream.stream_id}")
                case _:
                    pass
        self.told += [
            each for each in told(self.pair.connection.outbox.take()) if each[:11] != GREETING
        ]


BODIES = st.binary(max_size=8)
TRAILERS = block([("a", "b")])


@st.composite
def scripts(draw: st.DrawFn) -> list[bytes]:
    """Frames of a client; some go to streams that have ended."""
    sent: list[bytes] = []
    opened = 0
    for _ in range(draw(st.integers(1, 25))):
        step = draw(st.sampled_from(["open", "data", "data", "end", "reset", "other", "other"]))
        if step == "open" or not opened:
            opened += 1
            flags = draw(st.sampled_from([0, 0, END_STREAM]))
            stream_id = 2 * opened - 1
            if draw(st.booleans()):
                sent.append(headers(stream_id, CALL, END_HEADERS | flags))
            else:
                sent.append(frame(FrameType.HEADERS, flags, stream_id, block()[:20]))
                sent[-1] += frame(FrameType.CONTINUATION, END_HEADERS, stream_id, block()[20:])
            continue
        stream_id = 2 * draw(st.integers(1, opened)) - 1
        body = draw(BODIES)
        match step:
            case "data":
                pad = draw(st.integers(0, 4))
                sent.append(data(stream_id, body))
                sent.append(data(stream_id, bytes([pad]) + body + bytes(pad), PADDED))
            case "end":
                trailers = frame(FrameType.HEADERS, END_HEADERS | END_STREAM, stream_id, TRAILERS)
                sent.append(draw(st.sampled_from([trailers, data(stream_id, body, END_STREAM)])))
            case "reset":
                sent.append(reset_frame(stream_id, 8))
            case _:
                sent.append(draw(_others(stream_id)))
    return sent


def _others(stream_id: int) -> st.SearchStrategy[bytes]:
    """Frames that bring no part of a request."""
    number = st.integers(1, 1000)
    return st.one_of(
        number.map(lambda count: window_update_frame(0, count)),
        number.map(lambda count: window_update_frame(stream_id, count)),
        number.map(lambda value: settings_frame({4: value})),
        st.binary(min_size=8, max_size=8).map(lambda text: frame(FrameType.PING, 0, 0, text)),
        st.just(frame(FrameType.PRIORITY, 0, stream_id, bytes([0, 0, 0, 0, 1]))),
        st.just(settings_frame({2: 0, 0x99: 7})),
    )


# The end of a connection at the first frame that breaks one of its rules.
BREAKING = st.sampled_from(
    [
        b"",
        frame(FrameType.PING, 0, 1, bytes(8)),
        frame(FrameType.SETTINGS, ACK, 0, bytes(6)),
        window_update_frame(0, 0),
        data(99, b"x"),
        frame(FrameType.GOAWAY, 0, 0, bytes(3)),
    ]
)


@given(scripts(), BREAKING)
@settings(max_examples=examples(200))
def test_a_sequence_of_frames_means_the_same_to_both(sent: list[bytes], last: bytes) -> None:
    ours, oracle = Ours(Limits()), Oracle(Limits())
    for each in [PREFACE + settings_frame({}), *sent, last]:
        told_before = len(ours.told), len(oracle.told)
        ours.send(each)
        oracle.send(each)
        assert ours.seen == oracle.seen
        if ours.pair.connection.is_over != oracle.is_over:
            answers = ours.told[told_before[0] :], oracle.told[told_before[1] :]
            assert_differ_as_allowed(str(ours.pair.connection.fault), each, *answers)
            return
        # h2 says so again for each further frame of a stream that has ended; ours is silent then.
        assert set(ours.told) == set(oracle.told)
        assert without_ends(ours.told) == without_ends(oracle.told)


def assert_differ_as_allowed(fault: str, sent: bytes, ours: list[str], oracle: list[str]) -> None:
    """Check the only case in which one goes on: trailers of a stream that has ended."""
    (trailers,) = frames_of(sent)
    assert (trailers.kind, trailers.payload) == (FrameType.HEADERS, TRAILERS)
    assert fault == "headers after the end of their stream"
    assert ours == ["GOAWAY"]
    assert oracle == [f"RST {trailers.stream_id} ENDED"]


def without_ends(found: list[str]) -> list[str]:
    return [each for each in found if not each.endswith(" ENDED") and not each.startswith("end ")]


@given(scripts(), BREAKING, st.data())
@settings(max_examples=examples(100))
def test_a_sequence_means_the_same_however_it_is_cut(
    sent: list[bytes], last: bytes, drawn: st.DataObject
) -> None:
    whole = PREFACE + settings_frame({}) + b"".join(sent) + last
    ours, pieces = Ours(Limits()), Ours(Limits())
    ours.send(whole)
    at = 0
    while at < len(whole):
        size = drawn.draw(st.integers(1, 40))
        pieces.send(whole[at : at + size])
        at += size
    # A request whose end came in the same read is seen as ended from its beginning.
    assert set(pieces.seen) == set(ours.seen)
    assert without_ends(pieces.seen) == without_ends(ours.seen)
    assert pieces.told == ours.told


@given(st.binary(max_size=300))
@settings(max_examples=examples(200))
def test_any_bytes_are_taken_or_refused(sent: bytes) -> None:
    pair = Pair()
    pair.send(sent)
    fault = pair.connection.fault
    assert pair.connection.is_over == (fault is not None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 3, 4, 6, 7, 8, 9, 20]),
            st.integers(0, 255),
            st.sampled_from([0, 1, 3, 1]),
            st.binary(max_size=20),
        ),
        max_size=20,
    )
)
@example([(3, 0, 1, b"\0\0\0\0"), (0, 0, 1, b"\0")])  # data on a stream that the peer reset
@settings(max_examples=examples(300))
def test_any_frames_are_taken_or_refused(sent: list[tuple[int, int, int, bytes]]) -> None:
    pair = Pair()
    pair.send(headers(1), *[frame(*each) for each in sent])
    told = pair.outcome()
    assert pair.connection.is_over == any(each.startswith("GOAWAY") for each in told) or any(
        each[0] == FrameType.GOAWAY for each in sent
    )
    held = sum(each.held_bytes for each in pair.connection.streams.values())
    window = pair.connection._window + pair.connection._unreported_bytes + held
    assert pair.connection.fault is not None or window == Limits().connection_window_bytes
