"""Each rule of RFC 9113 and RFC 7541 that a client can break, and what it is told."""

from __future__ import annotations

import struct

from proxy.http2.events import Received, Requested
from proxy.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    FrameType,
    frame,
    goaway_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from tests.proxy.http2.peer import CALL, POST, Pair, block, data, headers, request

PROTOCOL = ["GOAWAY PROTOCOL_ERROR"]
SIZE = ["GOAWAY FRAME_SIZE_ERROR"]
FLOW = ["GOAWAY FLOW_CONTROL_ERROR"]
COMPRESSION = ["GOAWAY COMPRESSION_ERROR"]
CLOSED = ["GOAWAY STREAM_CLOSED"]
ONE = ["RST 1 PROTOCOL_ERROR"]
FINE: list[str] = []

WHOLE = headers(1, flags=END_HEADERS | END_STREAM)
OPEN = headers(1)
RESET = reset_frame(1, 8)
PART = headers(1, flags=0)
MOST = 16384


def setting(name: int, value: int) -> bytes:
    return settings_frame({name: value})


def of(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    return frame(kind, flags, stream_id, payload)


def with_headers(*sent: tuple[str, str]) -> bytes:
    return headers(1, sent, END_HEADERS | END_STREAM)


def raw(fields: bytes) -> bytes:
    return of(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, block() + fields)


def without(name: str) -> tuple[tuple[str, str], ...]:
    return tuple([each for each in CALL if each[0] != name])


# Section, what a client sends after its preface and settings, and what it is told.
CASES: list[tuple[str, bytes, list[str]]] = [
    ("4.1 an unknown type", of(99, 0xFF, 0, b"abc"), FINE),
    ("4.1 an unknown type on a stream", OPEN + of(99, 0xFF, 1, b"abc"), FINE),
    ("4.1 undefined flags of a ping", of(FrameType.PING, 0x16, 0, bytes(8)), FINE),
    ("4.1 the reserved bit", of(FrameType.PING, 0, 1 << 31, bytes(8)), FINE),
    ("4.2 the largest frame", OPEN + data(1, bytes(MOST)), FINE),
    ("4.2 data over the largest frame", OPEN + data(1, bytes(MOST + 1)), SIZE),
    ("4.2 headers over it", of(FrameType.HEADERS, 4, 1, bytes(MOST + 1)), SIZE),
    ("4.3 a block that cannot be decoded", raw(b"\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    ("4.3 a priority within headers", PART + of(FrameType.PRIORITY, 0, 1, bytes(5)), PROTOCOL),
    ("4.3 other headers within headers", PART + headers(3), PROTOCOL),
    ("4.3 an unknown type within headers", PART + of(99), PROTOCOL),
    ("5.1 idle: data", data(1, b"x"), PROTOCOL),
    ("5.1 idle: a reset", RESET, PROTOCOL),
    ("5.1 idle: a window", window_update_frame(1, 100), PROTOCOL),
    ("5.1 idle: a continuation", of(FrameType.CONTINUATION, 4, 1, block()), PROTOCOL),
    ("5.1 half closed: data", WHOLE + data(1, b"x"), ["RST 1 STREAM_CLOSED"]),
    ("5.1 half closed: headers", WHOLE + WHOLE, ["RST 1 STREAM_CLOSED"]),
    ("5.1 half closed: a continuation", WHOLE + of(FrameType.CONTINUATION, 4, 1), PROTOCOL),
    ("5.1 half closed: a window", WHOLE + window_update_frame(1, 100), FINE),
    ("5.1 half closed: a priority", WHOLE + of(FrameType.PRIORITY, 0, 1, bytes(5)), FINE),
    ("5.1 reset: data", WHOLE + RESET + data(1, b"x"), ["RST 1 STREAM_CLOSED"]),
    ("5.1 reset: headers", WHOLE + RESET + WHOLE, CLOSED),
    ("5.1 reset: a continuation", WHOLE + RESET + of(FrameType.CONTINUATION, 4, 1), PROTOCOL),
    ("5.1 reset: a window", WHOLE + RESET + window_update_frame(1, 1), FINE),
    ("5.1 reset: another reset", WHOLE + RESET + RESET, FINE),
    ("5.1.1 an even number", headers(2), PROTOCOL),
    ("5.1.1 a smaller number", headers(5) + headers(3), PROTOCOL),
    ("5.1.1 a smaller number, the first", headers(5) + headers(1), PROTOCOL),
    (
        "5.3.1 headers that depend on themselves",
        of(
            FrameType.HEADERS,
            END_HEADERS | END_STREAM | PRIORITY,
            1,
            bytes([0, 0, 0, 1, 9]) + block(),
        ),
        ONE,
    ),
    (
        "5.3.1 a priority that depends on itself",
        of(FrameType.PRIORITY, 0, 1, bytes([0, 0, 0, 1, 9])),
        ONE,
    ),
    ("6.1 data on no stream", data(0, b"x"), PROTOCOL),
    ("6.1 data with padding", OPEN + data(1, b"\3ab\0\0\0", PADDED), FINE),
    ("6.1 padding as long as the data", OPEN + data(1, b"\6abcde", PADDED), PROTOCOL),
    ("6.1 padding without its length", OPEN + data(1, b"", PADDED), PROTOCOL),
    ("6.2 headers on no stream", headers(0), PROTOCOL),
    (
        "6.2 headers with padding and priority",
        of(
            FrameType.HEADERS,
            END_HEADERS | PADDED | PRIORITY,
            1,
            b"\2" + bytes(5) + block() + b"\0\0",
        ),
        FINE,
    ),
    (
        "6.2 padding as long as the headers",
        of(FrameType.HEADERS, END_HEADERS | PADDED, 1, bytes([200]) + block()[:150]),
        PROTOCOL,
    ),
    (
        "6.2 too short for a priority",
        of(FrameType.HEADERS, END_HEADERS | PRIORITY, 1, b"abc"),
        SIZE,
    ),
    ("6.3 a priority of no stream", of(FrameType.PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    (
        "6.3 a priority of another size",
        of(FrameType.PRIORITY, 0, 1, bytes(4)),
        ["RST 1 FRAME_SIZE_ERROR"],
    ),
    ("6.3 a priority of an idle stream", of(FrameType.PRIORITY, 0, 7, bytes(5)), FINE),
    ("6.4 a reset of no stream", reset_frame(0, 8), PROTOCOL),
    ("6.4 a reset of another size", OPEN + of(FrameType.RST_STREAM, 0, 1, bytes(3)), SIZE),
    ("6.5 an acknowledgement with settings", of(FrameType.SETTINGS, ACK, 0, bytes(6)), SIZE),
    ("6.5 settings of a stream", of(FrameType.SETTINGS, 0, 1), PROTOCOL),
    ("6.5 settings of another size", of(FrameType.SETTINGS, 0, 0, bytes(3)), SIZE),
    ("6.5.2 a push of 2", setting(2, 2), PROTOCOL),
    ("6.5.2 a push of 0", setting(2, 0), FINE),
    ("6.5.2 the largest window", setting(4, (1 << 31) - 1), FINE),
    ("6.5.2 a window over 2^31 - 1", setting(4, 1 << 31), FLOW),
    ("6.5.2 frames below 2^14", setting(5, MOST - 1), PROTOCOL),
    ("6.5.2 frames over 2^24 - 1", setting(5, 1 << 24), PROTOCOL),
    ("6.5.2 the largest frames", setting(5, (1 << 24) - 1), FINE),
    ("6.5.2 an unknown setting", setting(0xFF, 1), FINE),
    ("6.6 a push", of(FrameType.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL),
    ("6.7 a ping of a stream", of(FrameType.PING, 0, 1, bytes(8)), PROTOCOL),
    ("6.7 a ping of another size", of(FrameType.PING, 0, 0, bytes(6)), SIZE),
    ("6.7 an acknowledgement of no ping", of(FrameType.PING, ACK, 0, b"never me"), FINE),
    ("6.8 a GOAWAY of a stream", of(FrameType.GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    ("6.8 a GOAWAY of another size", of(FrameType.GOAWAY, 0, 0, bytes(7)), SIZE),
    ("6.8 a GOAWAY with calls open", OPEN + goaway_frame(0, 0, "bye"), FINE),
    ("6.9 a window that opens by 0", window_update_frame(0, 0), PROTOCOL),
    ("6.9 a stream's window that opens by 0", OPEN + window_update_frame(1, 0), ONE),
    ("6.9 a window update of another size", of(FrameType.WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    ("6.9.1 a window over 2^31 - 1", window_update_frame(0, (1 << 31) - 1), FLOW),
    (
        "6.9.1 a stream's window over 2^31 - 1",
        OPEN + window_update_frame(1, (1 << 31) - 1),
        ["RST 1 FLOW_CONTROL_ERROR"],
    ),
    (
        "6.9.2 settings that open a window beyond 2^31 - 1",
        OPEN + window_update_frame(1, 1000) + setting(4, (1 << 31) - 1),
        FLOW,
    ),
    (
        "6.10 continuations",
        PART + of(FrameType.CONTINUATION, 0, 1) + of(FrameType.CONTINUATION, END_HEADERS, 1),
        FINE,
    ),
    (
        "6.10 continuations of another stream",
        PART + of(FrameType.CONTINUATION, END_HEADERS, 3),
        PROTOCOL,
    ),
    (
        "6.10 a continuation of no stream",
        PART + of(FrameType.CONTINUATION, END_HEADERS, 0),
        PROTOCOL,
    ),
    (
        "6.10 a continuation after the end",
        OPEN + of(FrameType.CONTINUATION, END_HEADERS, 1),
        PROTOCOL,
    ),
    ("6.10 data within headers", PART + data(1, b"x"), PROTOCOL),
    ("8.1 trailers", OPEN + headers(1, [("a", "b")], END_HEADERS | END_STREAM), FINE),
    ("8.1 trailers that do not end it", OPEN + headers(1, [("a", "b")]), ONE),
    ("8.2.1 a name in capitals", raw(b"\0\1A\1b"), ONE),
    ("8.2.1 a name with a blank", raw(b"\0\2a \1b"), ONE),
    ("8.2.1 an empty name", raw(b"\0\0\1b"), ONE),
    ("8.2.1 a value with a line break", raw(b"\0\1a\2b\n"), ONE),
    ("8.2.1 a value with a zero", raw(b"\0\1a\2b\0"), ONE),
    ("8.2.2 connection", with_headers(*CALL, ("connection", "keep-alive")), ONE),
    ("8.2.2 transfer-encoding", with_headers(*CALL, ("transfer-encoding", "chunked")), ONE),
    ("8.2.2 another te", with_headers(*POST, ("te", "trailers, deflate")), ONE),
    ("8.3 an unknown pseudo-header", with_headers((":test", "1"), *CALL), ONE),
    ("8.3 one of answers", with_headers((":status", "200"), *CALL), ONE),
    ("8.3 one in trailers", OPEN + headers(1, [(":method", "GET")], END_HEADERS | END_STREAM), ONE),
    ("8.3 one after a regular header", with_headers(*CALL, (":authority", "a")), ONE),
    ("8.3.1 no method", with_headers(*without(":method")), ONE),
    ("8.3.1 no scheme", with_headers(*without(":scheme")), ONE),
    ("8.3.1 no path", with_headers(*without(":path")), ONE),
    ("8.3.1 an empty path", with_headers((":path", ""), *without(":path")), ONE),
    ("8.3.1 two methods", with_headers((":method", "POST"), *CALL), ONE),
    (
        "8.1.1 a content-length that is not that of the data",
        headers(1, [*CALL, ("content-length", "1")]) + data(1, b"ab", END_STREAM),
        ONE,
    ),
    (
        "8.1.1 the same in two frames",
        headers(1, [*CALL, ("content-length", "1")]) + data(1, b"ab") + data(1, b"c", END_STREAM),
        ONE,
    ),
    ("8.1.1 a content-length without data", with_headers(*CALL, ("content-length", "1")), ONE),
    ("8.1.1 a content-length that is none", with_headers(*CALL, ("content-length", "-1")), ONE),
    (
        "8.1.1 the right content-length",
        headers(1, [*CALL, ("content-length", "2")]) + data(1, b"ab", END_STREAM),
        FINE,
    ),
    ("HPACK 2.3.3 an index beyond the table", raw(b"\xfe"), COMPRESSION),
    ("HPACK 2.3.3 an index of 0", raw(b"\x80"), COMPRESSION),
    ("HPACK 4.2 a table's size after a field", raw(b"\x20"), COMPRESSION),
    ("HPACK 5.1 an integer that is too long", raw(b"\0\x7f" + b"\xff" * 8 + b"\1"), COMPRESSION),
    ("HPACK 5.2 padding of more than 7 bits", raw(b"\0\1a\x82\x1f\xff"), COMPRESSION),
    ("HPACK 5.2 padding of zeros", raw(b"\0\1a\x81\x18"), COMPRESSION),
    ("HPACK 5.2 the end of text within a text", raw(b"\0\1a\x84\xff\xff\xff\xff"), COMPRESSION),
    ("HPACK 6.1 a text that is cut off", raw(b"\0\5ab"), COMPRESSION),
    (
        "HPACK 6.3 a table over the limit",
        of(FrameType.HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xe2\x1f" + block()),
        COMPRESSION,
    ),
]


def fields_of(pair: Pair, sent: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in pair.decoder.decode(sent)]


def test_a_client_is_told_each_rule_that_it_breaks() -> None:
    problems = []
    for name, sent, expected in CASES:
        pair = Pair()
        pair.send(sent)
        told = pair.outcome()
        if told != expected:
            problems.append(f"{name}: {told}, not {expected}")
        is_over = any(each.startswith("GOAWAY") for each in expected)
        if pair.connection.is_over != is_over:
            problems.append(f"{name}: over is {pair.connection.is_over}")
    assert not problems, "\n".join(problems)


def test_what_a_client_is_told_does_not_depend_on_how_its_bytes_are_cut() -> None:
    problems = []
    for name, sent, expected in CASES:
        pair = Pair()
        if len(sent) > 4 * MOST:
            continue
        for at in range(0, len(sent), 3):
            pair.send(sent[at : at + 3])
        told = pair.outcome()
        if told != expected:
            problems.append(f"{name}: {told}, not {expected}")
    assert not problems, "\n".join(problems)


def test_calls_on_the_same_connection_go_on_after_a_mistake_in_one() -> None:
    problems = []
    for name, sent, expected in CASES:
        if all(each.startswith("RST 1 ") for each in expected):
            pair = Pair()
            pair.send(sent)
            if pair.connection.is_over or pair.connection._block is not None:
                continue
            events = pair.send(request(9, b"still there"))
            if not any(isinstance(each, Requested) for each in events):
                problems.append(name)
    assert not problems, "\n".join(problems)


def test_a_client_that_begins_with_something_else_than_settings_is_refused() -> None:
    for sent in (headers(1), of(FrameType.PING, 0, 0, bytes(8)), of(FrameType.SETTINGS, ACK)):
        pair = Pair()
        pair.connection = type(pair.connection)(pair.connection._limits, pair.now)
        pair.send(PREFACE, sent)
        assert pair.outcome() == PROTOCOL


def test_a_preface_is_known_by_any_of_its_bytes() -> None:
    for wrong in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", b"\x16\3\1"):
        pair = Pair()
        pair.connection = type(pair.connection)(pair.connection._limits, pair.now)
        pair.send(wrong)
        assert pair.connection.is_over
        assert pair.connection.first_bytes == wrong


def test_settings_and_pings_are_acknowledged() -> None:
    pair = Pair()
    pair.send(settings_frame({4: 100}), of(FrameType.PING, 0, 0, b"12345678"))
    settings, ping = pair.taken()
    assert settings == (FrameType.SETTINGS, ACK, 0, b"")
    assert ping == (FrameType.PING, ACK, 0, b"12345678")


def test_the_first_frames_announce_the_limits() -> None:
    pair = Pair()
    settings, window, acknowledgement = pair.first
    assert acknowledgement.flags == ACK
    assert dict(struct.iter_unpack(">HI", settings.payload)) == {
        3: 1024,
        4: 1 << 20,
        5: 16384,
        6: 16384,
    }
    assert window.number == (1 << 24) - 65535


def test_padding_is_taken_off_and_counts_in_the_windows() -> None:
    pair = Pair()
    pair.send(headers(1))
    (event,) = pair.send(data(1, b"\3ab\0\0\0", PADDED))
    assert isinstance(event, Received)
    assert event.data == b"ab"
    assert event.stream.receive_window == (1 << 20) - 6
    assert event.stream.held_bytes == 2


def test_a_peer_with_a_smaller_table_is_told_that_none_is_used() -> None:
    pair = Pair()
    pair.decoder.header_table_size = pair.decoder.max_allowed_table_size = 100
    pair.send(settings_frame({1: 100}), WHOLE, headers(3, flags=END_HEADERS | END_STREAM))
    for event in pair.events:
        assert isinstance(event, Requested)
        pair.connection.answer(event.stream, b"\x88", pair.now)
    first, second = [each for each in pair.taken() if each.kind == FrameType.HEADERS]
    assert first.payload == b"\x20\x88"
    assert second.payload == b"\x88"
    assert fields_of(pair, first.payload) == [(":status", "200")]


def test_a_long_block_of_an_answer_is_continued() -> None:
    pair = Pair()
    pair.send(WHOLE)
    (event,) = pair.events
    assert isinstance(event, Requested)
    value = b"v" * 40_000
    length = b"\x7f" + bytes([(40_000 - 127) & 0x7F | 0x80, (40_000 - 127) >> 7 & 0x7F | 0x80, 2])
    pair.connection.answer(event.stream, b"\x88\0\1a" + length + value, pair.now)
    frames = pair.taken()
    assert [each.kind for each in frames] == [1, 9, 9]
    assert [each.flags for each in frames] == [END_STREAM, 0, END_HEADERS]
    joined = b"".join([each.payload for each in frames])
    pair.decoder.max_header_list_size = 1 << 20
    assert fields_of(pair, joined)[1] == ("a", value.decode())
