"""Flow control in both directions (RFC 9113, sections 5.2 and 6.9)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.http2.events import Requested, Sent
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FrameType,
    settings_frame,
    window_update_frame,
)
from proxy.http2.limits import Limits
from proxy.http2.stream import Stream
from tests.examples import examples
from tests.proxy.http2.peer import Frame, Pair, data, headers

WINDOW = 4


def called(pair: Pair, stream_id: int = 1) -> Stream:
    """Begin a call whose client has sent all."""
    (event,) = pair.send(headers(stream_id, flags=END_HEADERS | END_STREAM))
    assert isinstance(event, Requested)
    return event.stream


def sizes(frames: list[Frame]) -> list[int]:
    return [len(each.payload) for each in frames if each.kind == FrameType.DATA]


def test_an_answer_waits_for_the_window_of_its_stream() -> None:
    pair = Pair(settings={WINDOW: 10})
    stream = called(pair)
    assert not pair.connection.outbox.data(stream, b"01234", b"56789abcde", pair.now)
    assert [each.payload for each in pair.taken()] == [b"0123456789"]
    pair.send(window_update_frame(1, 3))
    assert [each.payload for each in pair.taken()] == [b"abc"]
    events = pair.send(window_update_frame(1, 2))
    assert events == [Sent(stream)]
    assert [each.payload for each in pair.taken()] == [b"de"]
    assert stream.send_window == 0


def test_an_answer_waits_for_the_window_of_its_connection() -> None:
    pair = Pair(settings={WINDOW: 1 << 20})
    stream, other = called(pair, 1), called(pair, 3)
    outbox = pair.connection.outbox
    assert not outbox.data(stream, b"", bytes(70_000), pair.now)
    assert not outbox.data(other, b"", bytes(10), pair.now)
    assert sum(sizes(pair.taken())) == 65535
    pair.send(window_update_frame(0, 4475))
    assert {each.stream_id: len(each.payload) for each in pair.taken()} == {1: 4465, 3: 10}


def test_streams_take_turns_in_a_small_window_of_their_connection() -> None:
    pair = Pair(settings={WINDOW: 1 << 20})
    streams = [called(pair, 2 * number + 1) for number in range(3)]
    for stream in streams:
        pair.connection.outbox.data(stream, b"", bytes(100_000), pair.now)
    pair.taken()
    pair.send(window_update_frame(0, 6 * 16384))
    ids = [each.stream_id for each in pair.taken() if len(each.payload) == 16384]
    assert sorted(ids) == [1, 1, 3, 3, 5, 5]
    assert sorted(ids[:3]) == [1, 3, 5]


def test_trailers_follow_the_data_that_wait() -> None:
    pair = Pair(settings={WINDOW: 3})
    stream = called(pair)
    pair.connection.outbox.data(stream, b"", b"abcdef", pair.now)
    pair.connection.end(stream, b"\x88", pair.now)
    assert [each.kind for each in pair.taken()] == [FrameType.DATA]
    pair.send(window_update_frame(1, 3))
    last = pair.taken()
    assert [each.kind for each in last] == [FrameType.DATA, FrameType.HEADERS]
    assert last[1].flags == END_HEADERS | END_STREAM
    assert stream.is_closed
    assert not pair.connection.streams


def test_settings_move_the_windows_of_open_streams_below_zero_and_back() -> None:
    pair = Pair(settings={WINDOW: 10})
    stream = called(pair)
    pair.connection.outbox.data(stream, b"", bytes(15), pair.now)
    assert sizes(pair.taken()) == [10]
    pair.send(settings_frame({WINDOW: 4}))
    assert stream.send_window == -6
    pair.send(window_update_frame(1, 6))
    assert sizes(pair.taken()) == []
    pair.send(settings_frame({WINDOW: 6}))
    assert sizes(pair.taken()) == [2]
    pair.send(settings_frame({WINDOW: 100}))
    assert sizes(pair.taken()) == [3]


def test_data_are_cut_to_the_frames_that_the_peer_takes() -> None:
    pair = Pair(settings={WINDOW: 1 << 20, 5: 20_000})
    pair.send(window_update_frame(0, 1 << 20))
    stream = called(pair)
    pair.connection.outbox.data(stream, b"", bytes(50_000), pair.now)
    assert sizes(pair.taken()) == [20_000, 20_000, 10_000]


def test_data_wait_while_much_is_unsent() -> None:
    pair = Pair(Limits(max_unsent_bytes=1000), {WINDOW: 1 << 20})
    stream = called(pair)
    assert pair.connection.outbox.data(stream, b"", bytes(1200), pair.now)
    assert not pair.connection.outbox.data(stream, b"", bytes(100), pair.now)
    first = pair.connection.outbox.take()
    assert len(first) < 1300
    pair.connection.outbox.pump()
    assert pair.connection.take_events(pair.now) == [Sent(stream)]


def test_what_is_read_is_given_back_in_large_pieces() -> None:
    pair = Pair(Limits(stream_window_bytes=1000, connection_window_bytes=100_000))
    pair.send(headers(1))
    stream = pair.connection.streams[1]
    pair.send(data(1, bytes(900)))
    pair.connection.read(stream, 400)
    assert pair.taken() == []
    pair.connection.read(stream, 400)
    (update,) = pair.taken()
    assert (update.stream_id, update.number) == (1, 800)
    assert stream.receive_window == 900


def test_a_client_may_send_no_more_than_its_windows() -> None:
    pair = Pair(Limits(stream_window_bytes=1000))
    pair.send(headers(1), data(1, bytes(1000)))
    assert pair.outcome() == []
    pair.send(data(1, bytes(1)))
    assert pair.outcome() == ["RST 1 FLOW_CONTROL_ERROR"]
    pair = Pair(Limits(connection_window_bytes=70_000))
    pair.send(headers(1), headers(3), data(1, bytes(16384)) * 4)
    pair.send(data(3, bytes(4464)))
    assert pair.outcome() == []
    pair.send(data(3, bytes(1)))
    assert pair.outcome() == ["GOAWAY FLOW_CONTROL_ERROR"]


def test_data_of_ended_streams_go_back_to_the_window_of_the_connection() -> None:
    limits = Limits(connection_window_bytes=100_000, stream_window_bytes=70_000)
    pair = Pair(limits)
    for stream_id in range(1, 200, 2):
        # A half of each stream is never read, and a half comes after we have reset it.
        pair.send(headers(stream_id), data(stream_id, bytes(9000)))
        pair.connection.reset(stream_id, 8, "a trial")
        pair.send(data(stream_id, bytes(9000)))
        pair.taken()
    assert not pair.connection.is_over
    assert pair.connection._window + pair.connection._unreported_bytes == 100_000


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(100))
def test_any_windows_let_all_answers_through_in_their_order(
    lengths: list[int], drawn: st.DataObject
) -> None:
    pair = Pair(settings={WINDOW: drawn.draw(st.integers(0, 30))})
    streams = {}
    bodies: dict[int, bytes] = {}
    window = {}
    for number, length in enumerate(lengths):
        stream = called(pair, 2 * number + 1)
        streams[stream.stream_id] = stream
        bodies[stream.stream_id] = bytes(range(length))
        window[stream.stream_id] = stream.send_window
        pair.connection.outbox.data(stream, b"", bodies[stream.stream_id], pair.now)
        pair.connection.end(stream, b"", pair.now)
    got = dict.fromkeys(bodies, b"")
    ended = set()
    for _ in range(1000):
        for each in pair.taken():
            got[each.stream_id] += each.payload
            window[each.stream_id] -= len(each.payload)
            if each.flags & END_STREAM:
                ended.add(each.stream_id)
        assert all(left >= 0 for left in window.values())
        waiting = [each for each in bodies if each not in ended]
        if not waiting:
            break
        stream_id = drawn.draw(st.sampled_from(waiting))
        opened = drawn.draw(st.integers(1, 20))
        window[stream_id] += opened
        pair.send(window_update_frame(stream_id, opened))
    assert got == bodies
    assert not pair.connection.streams
