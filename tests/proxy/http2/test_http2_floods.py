"""What a hostile client may do, and no more: each flood ends its connection, and says why."""

from __future__ import annotations

import math

from proxy.http2.events import Requested, Reset
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FrameType,
    frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.limits import Limits
from tests.proxy.http2.peer import CALL, Pair, block, data, headers, request

CALM = ["GOAWAY ENHANCE_YOUR_CALM"]
PING = frame(FrameType.PING, 0, 0, bytes(8))


def sent_until_refused(pair: Pair, made: list[bytes]) -> int:
    """How many of these were taken before the connection ended."""
    for number, each in enumerate(made):
        pair.send(each)
        if pair.connection.is_over:
            return number
    return len(made)


def test_calls_that_are_reset_at_once_end_the_connection() -> None:
    pair = Pair(Limits(reset_burst=100, resets_per_s=10))
    attack = [headers(2 * n + 1) + reset_frame(2 * n + 1, 8) for n in range(1000)]
    assert sent_until_refused(pair, attack) == 100
    assert pair.outcome() == CALM
    assert pair.connection.fault is not None
    assert "reset" in str(pair.connection.fault)


def test_a_client_may_cancel_all_its_calls_at_once_and_again_later() -> None:
    limits = Limits()
    pair = Pair(limits)
    first = 1
    for _ in range(4):
        ids = range(first, first + 2 * limits.max_streams, 2)
        first = ids.stop
        for stream_id in ids:
            pair.send(headers(stream_id))
        for stream_id in ids:
            pair.send(reset_frame(stream_id, 8))
        assert not pair.connection.is_over
        pair.now += 20


def test_errors_that_have_the_server_reset_streams_count_as_resets() -> None:
    for mistake in (window_update_frame, lambda stream_id, _: data(stream_id, b"", END_STREAM) * 2):
        pair = Pair(Limits(reset_burst=50, resets_per_s=1))
        attack = [headers(2 * n + 1) + mistake(2 * n + 1, 0) for n in range(200)]
        assert sent_until_refused(pair, attack) == 50
        assert pair.outcome()[-1:] == CALM


def test_streams_beyond_the_limit_are_refused_and_count_as_resets() -> None:
    pair = Pair(Limits(max_streams=10, reset_burst=50, resets_per_s=1))
    assert sent_until_refused(pair, [headers(2 * n + 1) for n in range(100)]) == 60
    told = pair.outcome()
    assert told[0] == "RST 21 REFUSED_STREAM"
    assert told[-1:] == CALM
    assert pair.connection.streams == {}


def test_a_stream_that_ends_makes_room_for_another() -> None:
    pair = Pair(Limits(max_streams=1))
    for stream_id in range(1, 99, 2):
        (event,) = pair.send(headers(stream_id, flags=END_HEADERS | END_STREAM))
        assert isinstance(event, Requested)
        pair.connection.answer(event.stream, b"\x88", pair.now)
    assert pair.outcome() == []


def test_a_thousand_calls_at_once_are_served() -> None:
    pair = Pair()
    pair.send(*[headers(2 * n + 1) for n in range(1000)])
    assert len(pair.connection.streams) == 1000
    assert pair.outcome() == []


def test_continuations_are_bounded_in_number_and_in_bytes() -> None:
    begin = frame(FrameType.HEADERS, END_STREAM, 1, block())
    none, much = (frame(FrameType.CONTINUATION, 0, 1, part) for part in (b"", bytes(9000)))
    for part, taken in ((none, 8), (much, 1)):
        pair = Pair()
        pair.send(begin)
        assert sent_until_refused(pair, [part] * 100) == taken
        assert pair.outcome() == CALM
        assert pair.connection.streams == {}


def test_headers_are_bounded_after_they_were_decoded() -> None:
    pair = Pair()
    large = ("x-large", "v" * 3900)
    pair.send(headers(1, [*CALL, large], END_HEADERS))
    assert pair.outcome() == []
    # One octet names a header of 3.9 KiB that lies in the table.
    pair.send(frame(FrameType.HEADERS, END_HEADERS, 3, block() + b"\xbe" * 10_000))
    assert pair.outcome() == CALM


def test_headers_of_16_kib_are_taken_and_not_more() -> None:
    own = sum([32 + len(name) + len(value) for name, value in CALL])
    room = 16384 - own - 32 - len("a")
    for length, expected in ((room, []), (room + 1, CALM)):
        pair = Pair()
        sent = block([*CALL, ("a", "v" * length)])
        pair.send(
            frame(FrameType.HEADERS, 0, 1, sent[:10_000]),
            frame(FrameType.CONTINUATION, END_HEADERS, 1, sent[10_000:]),
        )
        assert pair.outcome() == expected


def test_pings_are_bounded_and_a_hundred_a_second_are_answered() -> None:
    pair = Pair()
    for _ in range(10):
        pair.send(PING * 100)
        pair.now += 1
        assert len(pair.taken()) == 100
    assert sent_until_refused(pair, [PING] * 1000) == 200
    assert pair.outcome() == CALM


def test_settings_are_bounded() -> None:
    pair = Pair(Limits(settings_burst=10))
    attack = [settings_frame({4: 1000 + number}) for number in range(100)]
    assert sent_until_refused(pair, attack) == 9  # its first were among them
    assert pair.outcome() == CALM


def test_frames_that_carry_nothing_are_bounded() -> None:
    for each in (
        data(1),
        data(1, b"\2\0\0", 0x08),
        frame(FrameType.PRIORITY, 0, 1, bytes(5)),
        frame(77, 0, 1, bytes(100)),
        frame(FrameType.SETTINGS, 1, 0),
        frame(FrameType.GOAWAY, 0, 0, bytes(8)),
    ):
        pair = Pair(Limits(idle_frame_burst=100, idle_frames_per_s=1))
        pair.send(headers(1))
        taken = sent_until_refused(pair, [each] * 1000)
        assert 100 <= taken <= 101, each
        assert pair.outcome() == CALM


def test_windows_of_a_byte_cost_no_look_at_other_streams() -> None:
    pair = Pair(settings={4: 0})
    for n in range(1000):
        pair.send(headers(2 * n + 1, flags=END_HEADERS | END_STREAM))
    for stream in list(pair.connection.streams.values()):
        pair.connection.outbox.data(stream, b"", bytes(10), pair.now)
    assert pair.connection.outbox._ready == {}
    pair.send(window_update_frame(0, 1) * 1000, window_update_frame(7, 1))
    assert [(each.stream_id, len(each.payload)) for each in pair.taken()] == [(7, 1)]


def test_an_answer_that_nobody_reads_is_reset() -> None:
    pair = Pair(settings={4: 10})
    (event,) = pair.send(headers(1, flags=END_HEADERS | END_STREAM))
    assert isinstance(event, Requested)
    pair.connection.outbox.data(event.stream, b"", bytes(100), pair.now)
    pair.connection.end(event.stream, b"", pair.now)
    pair.wait(29)
    assert pair.outcome() == []
    pair.wait(2)
    assert pair.outcome() == ["RST 1 CANCEL"]
    assert isinstance(pair.events[-1], Reset)


def test_an_answer_that_is_read_by_the_byte_is_reset() -> None:
    limits = Limits(unread_s=30, min_taken_bytes=1024)
    for step_bytes, is_reset in ((10, True), (500, False)):
        pair = Pair(limits, {4: 0})
        (event,) = pair.send(headers(1, flags=END_HEADERS | END_STREAM))
        assert isinstance(event, Requested)
        pair.connection.outbox.data(event.stream, b"", bytes(1 << 20), pair.now)
        told = []
        for _ in range(20):
            pair.send(window_update_frame(1, step_bytes))
            pair.wait(5)
            told += pair.outcome()
        assert ("RST 1 CANCEL" in told) == is_reset


def test_a_connection_without_its_settings_is_closed_in_time() -> None:
    pair = Pair()
    pair.connection = type(pair.connection)(Limits(), pair.now)
    pair.connection.receive(b"PRI * HT", pair.now)
    pair.wait(9.9)
    assert not pair.connection.is_over
    pair.wait(0.2)
    assert pair.connection.is_over


def test_headers_and_frames_that_are_begun_must_be_ended_in_time() -> None:
    part = frame(FrameType.HEADERS, 0, 1, block())
    more = frame(FrameType.CONTINUATION, 0, 1)
    pair = Pair()
    pair.send(part)
    pair.wait(6)
    pair.send(more)
    pair.wait(5)
    assert pair.outcome() == CALM
    for cut in (3, 12):
        pair = Pair()
        pair.send(headers(1), data(1, bytes(100))[:cut])
        for at in range(4):
            pair.wait(7)
            pair.send(data(1, bytes(100))[cut + at : cut + at + 1])
        assert not pair.connection.is_over
        pair.wait(3)
        assert pair.outcome()[-1:] == CALM


def test_a_slow_upload_goes_on_as_long_as_its_frames_end() -> None:
    pair = Pair()
    whole = data(1, bytes(100))
    pair.send(headers(1), whole[:50])
    for _ in range(20):
        pair.wait(20)
        pair.send(whole[50:] + whole[:50])
    assert not pair.connection.is_over


def test_a_connection_without_calls_is_closed_and_one_with_a_call_is_not() -> None:
    pair = Pair()
    pair.send(request(1))
    pair.connection.answer(pair.connection.streams[1], b"\x88", pair.now)
    for _ in range(11):
        pair.wait(10)
        pair.send(PING)
    assert not pair.connection.is_over
    pair.wait(11)
    assert pair.outcome() == ["GOAWAY NO_ERROR"]
    assert pair.connection.fault is None
    pair = Pair()
    pair.send(headers(1))
    for _ in range(100):
        pair.wait(50)
        pair.send(PING)
    assert not pair.connection.is_over


def test_a_silent_peer_with_an_open_call_is_asked_and_must_answer() -> None:
    pair = Pair()
    pair.send(headers(1))
    for _ in range(5):
        pair.wait(61)
        (ping,) = pair.taken()
        assert ping.kind == FrameType.PING
        pair.send(frame(FrameType.PING, 1, 0, ping.payload))
    pair.wait(61)
    assert [each.kind for each in pair.taken()] == [FrameType.PING]
    pair.wait(20)
    assert pair.outcome() == CALM
    assert any(isinstance(each, Reset) for each in pair.events)


def test_nothing_is_due_for_a_drained_connection_that_is_over() -> None:
    pair = Pair()
    pair.connection.drain(pair.now)
    pair.connection.drain(pair.now)
    assert [each.kind for each in pair.taken()] == [FrameType.GOAWAY, FrameType.PING]
    assert pair.connection.next_at < math.inf


def test_a_drain_takes_the_calls_that_are_on_their_way_and_refuses_later_ones() -> None:
    pair = Pair()
    pair.send(headers(1))
    pair.connection.drain(pair.now)
    first, ping = pair.taken()
    assert int.from_bytes(first.payload[:4]) == (1 << 31) - 1
    pair.send(headers(3))
    assert 3 in pair.connection.streams
    pair.send(frame(FrameType.PING, 1, 0, ping.payload))
    (second,) = pair.taken()
    assert second.kind == FrameType.GOAWAY
    assert int.from_bytes(second.payload[:4]) == 3
    assert pair.send(headers(5), data(5, b"x")) == []
    assert 5 not in pair.connection.streams
    for stream in list(pair.connection.streams.values()):
        assert not pair.connection.is_over
        pair.connection.answer(stream, b"\x88", pair.now)
    assert pair.connection.is_over


def test_a_drain_goes_on_when_the_peer_does_not_answer_its_ping() -> None:
    pair = Pair()
    pair.connection.drain(pair.now)
    pair.taken()
    pair.wait(1.1)
    assert pair.outcome() == ["GOAWAY NO_ERROR"]
    assert pair.connection.is_over


def test_a_client_that_says_goodbye_gets_its_answers_first() -> None:
    pair = Pair()
    pair.send(headers(1, flags=END_HEADERS | END_STREAM))
    pair.send(frame(FrameType.GOAWAY, 0, 0, bytes(8)))
    assert not pair.connection.is_over
    pair.connection.answer(pair.connection.streams[1], b"\x88", pair.now)
    assert pair.connection.is_over
