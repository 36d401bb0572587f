"""A served connection, over streams in memory and in virtual time."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from proxy.http2.call import Call
from proxy.http2.draining import Draining
from proxy.http2.errors import CallEnded, GrpcStatus
from proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameType,
    frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection
from proxy.http2.status import Status
from remoting.net.host_shares import HostShares
from tests.proxy.http2.peer import CALL, data, headers, message, request
from tests.proxy.http2.served import PEER, connected, echo, hold


async def test_a_call_has_its_path_its_headers_and_its_peer(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    seen = []

    async def look(call: Call) -> None:
        seen.append((call.path, call.peer, dict(call.metadata), call.deadline_s))
        await call.send(b"done")

    client = await connected(nursery, look)
    sent = [*CALL, ("x-mq-a", "1"), ("x-mq-a", "2"), ("grpc-timeout", "5S")]
    began = trio.current_time()
    await client.send(request(1, b"", sent))
    ((path, peer, metadata, deadline_s),) = seen
    assert (path, peer) == ("/test.Service/Echo", PEER)
    assert metadata["x-mq-a"] == "1,2"
    assert metadata["content-type"] == "application/grpc"
    assert deadline_s == pytest.approx(began + 5)
    assert client.body(1) == message(b"done")
    assert client.statuses() == {1: {"grpc-status": "0"}}


async def test_answers_that_are_ready_together_leave_in_one_write(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    writes = []
    send_all = ours.send_stream.send_all

    async def counted(sent: bytes) -> None:
        writes.append(len(sent))
        await send_all(sent)

    ours.send_stream.send_all = counted  # type: ignore[method-assign, assignment]
    nursery.start_soon(serve_connection, ours, echo, Limits(), PEER)
    await theirs.send_all(PREFACE + settings_frame({}))
    await trio.testing.wait_all_tasks_blocked()
    before = len(writes)
    await theirs.send_all(b"".join([request(2 * n + 1, b"x" * 100) for n in range(64)]))
    await trio.testing.wait_all_tasks_blocked()
    assert len(writes) - before <= 2
    await theirs.aclose()


async def test_a_router_ends_a_call_with_a_status(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def end(call: Call) -> None:
        match await call.receive():
            case b"status":
                raise GrpcStatus(Status.NOT_FOUND, "no such thing")
            case b"group":
                async with trio.open_nursery() as inner:
                    inner.start_soon(fail, GrpcStatus(Status.ABORTED))
            case b"late":
                await call.send(b"first")
                raise GrpcStatus(Status.ABORTED)
            case _:
                raise ValueError("a defect")

    async def fail(error: Exception) -> None:
        raise error

    client = await connected(nursery, end)
    for number, body in enumerate((b"status", b"group", b"late", b"other")):
        await client.send(request(2 * number + 1, body))
    found = client.statuses()
    assert found[1]["grpc-status"] == "5"
    assert found[1]["grpc-message"] == "no such thing"
    assert found[1][":status"] == "200"  # trailers only
    assert found[3]["grpc-status"] == "10"
    assert found[5] == {"grpc-status": "10"}
    assert found[7]["grpc-status"] == "13"
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "/test.Service/Echo" in record.getMessage()


async def test_a_call_is_cancelled_at_its_deadline(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    client = await connected(nursery, hold)
    await client.send(headers(1, [*CALL, ("grpc-timeout", "2S")]), headers(3))
    await trio.sleep(1.9)
    await client.settle()
    assert client.statuses() == {}
    await trio.sleep(0.2)
    await client.settle()
    found = client.statuses()
    assert list(found) == [1]
    assert found[1]["grpc-status"] == "4"


async def test_a_call_is_cancelled_when_its_client_resets_it_or_leaves(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    ended = []

    async def wait(call: Call) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), pytest.raises(CallEnded):
                await call.send(b"too late")
            ended.append(call.is_over)

    client = await connected(nursery, wait)
    await client.send(headers(1), headers(3), reset_frame(1, 8))
    assert ended == []  # the first never began
    await client.send(reset_frame(3, 8), headers(5))
    assert ended == [True]
    await client.close()
    await trio.testing.wait_all_tasks_blocked()
    assert ended == [True, True]


async def test_a_send_waits_for_the_client_to_read(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent = []

    async def stream(call: Call) -> None:
        for number in range(10):
            await call.send(bytes(95))
            sent.append(number)

    begin = PREFACE + settings_frame({4: 250})
    client = await connected(nursery, stream, begin=begin)
    await client.send(headers(1, flags=END_HEADERS | END_STREAM))
    assert sent == [0, 1]
    await client.send(window_update_frame(1, 100))
    assert sent == [0, 1, 2]
    await client.send(window_update_frame(1, 1000))
    assert sent == list(range(10))
    assert client.statuses()[1] == {"grpc-status": "0"}


async def test_an_unread_request_is_held_back_and_a_read_one_may_be_larger_than_its_window(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    begin_reading = trio.Event()
    got = []

    async def take(call: Call) -> None:
        await begin_reading.wait()
        while (part := await call.receive()) is not None:
            got.append(len(part))

    limits = Limits(stream_window_bytes=40_000)
    client = await connected(nursery, take, limits)
    body = message(bytes(200_000))
    await client.send(headers(1))
    at, window = 0, 40_000
    for each in range(2):
        while window >= 10_000 and at < len(body):
            await client.send(data(1, body[at : at + 10_000]))
            at, window = at + 10_000, window - 10_000
            window += sum(
                update.number
                for update in client.kinds(FrameType.WINDOW_UPDATE)
                if update.stream_id == 1
            )
            client.frames = []
        if not each:
            assert at == 40_000
            begin_reading.set()
            await client.settle()
            window += sum(one.number for one in client.kinds(FrameType.WINDOW_UPDATE))
            client.frames = []
    assert at >= len(body)
    await client.send(data(1, b"", END_STREAM))
    assert got == [200_000]
    assert client.statuses()[1]["grpc-status"] == "0"


async def test_a_message_that_is_too_large_is_refused_before_it_has_come(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    client = await connected(nursery, echo, Limits(max_message_bytes=1000))
    await client.send(headers(1), data(1, message(bytes(1001))[:50]))
    (reset,) = client.kinds(FrameType.RST_STREAM)
    assert reset.number == 0
    assert client.statuses()[1]["grpc-status"] == "8"
    await client.send(data(1, bytes(500)), request(3, b"next"))
    assert client.body(3) == message(b"next")


async def test_incomplete_messages_of_a_connection_are_bounded_together(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    client = await connected(nursery, echo, Limits(max_held_bytes=30_000))
    part = message(bytes(100_000))[:10_000]
    for stream_id in (1, 3, 5):
        await client.send(headers(stream_id), data(stream_id, part))
    assert client.statuses() == {}
    await client.send(headers(7), data(7, part))
    assert client.statuses()[7]["grpc-status"] == "8"
    await client.send(reset_frame(1, 8))
    await client.send(headers(9), data(9, part))
    assert client.statuses() == {}


async def test_a_request_that_ends_within_a_message_is_refused(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    client = await connected(nursery, echo)
    await client.send(headers(1), data(1, message(b"hello")[:7], END_STREAM))
    assert client.statuses()[1]["grpc-status"] == "13"


async def test_requests_that_are_not_of_grpc_are_told_so(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    client = await connected(nursery, echo)
    plain = [each for each in CALL if each[0] != "content-type"]
    await client.send(headers(1, plain, END_HEADERS | END_STREAM))
    assert b"gRPC" in client.body(1)
    (head,) = client.kinds(FrameType.HEADERS)
    fields = [(str(name), str(value)) for name, value in client._decoder.decode(head.payload)]
    assert fields[0] == (":status", "415")


async def test_a_program_that_speaks_http_1_gets_an_answer_it_can_read(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    nursery.start_soon(serve_connection, ours, echo, Limits(), PEER)
    await theirs.send_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked()
    answer = bytes(await theirs.receive_some(10_000))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"this port speaks gRPC" in answer
    assert "this port speaks gRPC" in caplog.text


async def test_a_flood_ends_its_connection_is_told_and_others_are_served(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = Limits(reset_burst=100, ping_burst=100, settings_burst=10, idle_frame_burst=100)
    floods = {
        "streams that are reset": b"".join(
            [headers(2 * n + 1) + reset_frame(2 * n + 1, 8) for n in range(300)]
        ),
        "pings": frame(FrameType.PING, 0, 0, bytes(8)) * 1000,
        "settings": settings_frame({}) * 1000,
        "frames that carry nothing": headers(1) + data(1) * 1000,
        "continuations": headers(1, flags=0) + frame(FrameType.CONTINUATION, 0, 1) * 1000,
    }
    other = await connected(nursery, echo, limits)
    for number, (name, sent) in enumerate(floods.items()):
        hostile = await connected(nursery, echo, limits)
        await hostile.send(sent)
        (goaway,) = hostile.kinds(FrameType.GOAWAY)
        assert goaway.payload[4:8] == b"\0\0\0\x0b"
        assert name.encode() in goaway.payload
        assert name in caplog.records[-1].getMessage()
        await hostile.close()
        await other.send(request(2 * number + 1, b"still"))
        assert other.body(2 * number + 1) == message(b"still")


async def test_a_client_that_never_reads_is_read_no_further_and_then_closed(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    served = trio.Event()

    async def serve() -> None:
        await serve_connection(ours, echo, Limits(ping_burst=10**6), PEER)
        served.set()

    nursery.start_soon(serve)
    taken = 0
    began = trio.current_time()
    with pytest.raises(trio.BrokenResourceError):  # noqa: PT012 (it goes on until it is closed)
        await theirs.send_all(PREFACE + settings_frame({}))
        while True:
            await theirs.send_all(frame(FrameType.PING, 0, 0, bytes(8)) * 1000)
            taken += 17_000
    await served.wait()
    assert taken < 1_000_000
    assert trio.current_time() - began == pytest.approx(30, abs=2)
    assert "takes nothing" in caplog.text


async def test_tasks_of_calls_that_were_reset_are_bounded(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    running = most = 0
    release = trio.Event()

    async def clean_up_slowly(_call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        with trio.CancelScope(shield=True):
            await release.wait()
        running -= 1

    client = await connected(nursery, clean_up_slowly, Limits(max_streams=10, max_calls=20))
    for stream_id in range(1, 201, 2):
        await client.send(headers(stream_id))
        await client.send(reset_frame(stream_id, 8))
    assert most == 20
    refused = [each for each in client.kinds(FrameType.RST_STREAM) if each.number == 7]
    assert len(refused) == 80
    release.set()


async def test_calls_of_one_host_leave_room_for_those_of_others(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each takes memory for as long as its client likes, by any number of connections."""
    calls = HostShares(10)
    greedy = [
        await connected(nursery, hold, calls=calls, peer=f"10.0.0.1:{port}") for port in (1, 2)
    ]
    refused: list[dict[str, str]] = []
    for client in greedy:
        for stream_id in range(1, 13, 2):
            await client.send(headers(stream_id))
        refused += client.statuses().values()
    assert [each["grpc-status"] for each in refused] == [str(int(Status.RESOURCE_EXHAUSTED))] * 4
    assert "8 calls of host 10.0.0.1 are being answered" in caplog.text
    other = await connected(nursery, echo, calls=calls, peer="10.0.0.2:1")
    await other.send(request(1, b"served"))
    assert other.body(1) == message(b"served")
    await greedy[0].close()
    await greedy[1].send(headers(101))
    assert greedy[1].statuses().keys() == set()
    await greedy[1].close()
    assert calls.taken == 0


async def test_a_drain_ends_connections_after_their_last_calls(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    draining = Draining()
    finish = trio.Event()

    async def wait(call: Call) -> None:
        await finish.wait()
        await call.send(b"done")

    client = await connected(nursery, wait, draining=draining)
    idle = await connected(nursery, wait, draining=draining)
    await client.send(request(1))
    draining.begin()
    await client.settle()
    await client.send(request(3))  # it was on its way
    await trio.sleep(2.5)
    await client.settle()
    await idle.settle()
    assert idle.has_ended
    assert [each.payload[:4] for each in client.kinds(FrameType.GOAWAY)] == [
        b"\x7f\xff\xff\xff",
        b"\0\0\0\3",
    ]
    assert draining.connections == 1
    client.frames = []
    finish.set()
    await client.settle()
    assert set(client.statuses()) == {1, 3}
    await trio.sleep(2)
    assert draining.connections == 0
    late = await connected(nursery, wait, draining=draining)
    assert late.frames[0].kind == FrameType.SETTINGS
    assert late.kinds(FrameType.GOAWAY)
    await trio.sleep(1.5)
    await late.settle()
    assert late.has_ended


async def test_a_cancelled_server_cancels_its_calls_and_closes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ended = []

    async def wait(call: Call) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(call.path)

    async with trio.open_nursery() as nursery:
        client = await connected(nursery, wait)
        await client.send(headers(1))
        nursery.cancel_scope.cancel()
    assert ended == ["/test.Service/Echo"]
