"""Calls by grpcio, the client of Google, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio

from proxy.http2.call import Call
from proxy.http2.draining import Draining
from proxy.http2.errors import GrpcStatus
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection
from proxy.http2.status import Status

UNLIMITED = [("grpc.max_receive_message_length", -1)]
PATIENCE_S = 30.0


class Service:
    """What the calls do, by the last word of their path.

    Attributes:
        cancelled: set when a call that waited is cancelled.
        metadata: of the last call of `Look`.
    """

    def __init__(self) -> None:
        self.cancelled = trio.Event()
        self.metadata: dict[str, str] = {}

    async def route(self, call: Call) -> None:
        match call.path.rpartition("/")[2]:
            case "Echo":
                await call.send(await call.receive() or b"")
            case "Count":
                for number in range(len(await call.receive() or b"")):
                    await call.send(b"%d" % number)
            case "Sum":
                total = 0
                while (got := await call.receive()) is not None:
                    total += len(got)
                await call.send(b"%d" % total)
            case "Talk":
                await call.open()
                while (got := await call.receive()) is not None:
                    await call.send(got.upper())
            case "Wait":
                try:
                    await trio.sleep_forever()
                finally:
                    self.cancelled.set()
            case "Look":
                self.metadata = dict(call.metadata)
                await call.send(b"")
            case other:
                raise GrpcStatus(Status.UNIMPLEMENTED, f"no method {other}: 100 % ä")


@asynccontextmanager
async def served(draining: Draining | None = None) -> AsyncIterator[tuple[Service, grpc.Channel]]:
    """A server in this loop, and a client, which is used in threads."""
    service = Service()

    async def take(stream: trio.SocketStream) -> None:
        await serve_connection(stream, service.route, Limits(), "127.0.0.1:1", draining=draining)

    async with trio.open_nursery() as nursery:
        listeners: Any = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, take, listeners)
        port = listeners[0].socket.getsockname()[1]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED)
        try:
            yield service, channel
        finally:
            channel.close()
            nursery.cancel_scope.cancel()


async def run(work: Callable[[], Any]) -> Any:
    with trio.fail_after(PATIENCE_S):
        return await trio.to_thread.run_sync(work)


def failure(call: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value


async def test_unary_calls_of_any_size_are_answered() -> None:
    async with served() as (_, channel):
        echo = channel.unary_unary("/t.S/Echo")

        def calls() -> None:
            for size in (0, 1, 16_379, 16_380, 65_535, 1 << 20, 4 * 1024 * 1024 + 1000):
                body = bytes(range(256)) * (size // 256) + bytes(size % 256)
                assert echo(body, timeout=PATIENCE_S) == body
            pending = [echo.future(b"%d" % number) for number in range(500)]
            assert [each.result() for each in pending] == [b"%d" % n for n in range(500)]

        await run(calls)


async def test_streams_in_both_directions() -> None:
    async with served() as (_, channel):

        def calls() -> None:
            answers = list(channel.unary_stream("/t.S/Count")(bytes(3000)))
            assert answers == [b"%d" % number for number in range(3000)]
            many = iter([bytes(100_000)] * 30)
            assert channel.stream_unary("/t.S/Sum")(many) == b"3000000"

            talk = channel.stream_stream("/t.S/Talk")(iter([b"a", b"b", b"c"]))
            assert list(talk) == [b"A", b"B", b"C"]

        await run(calls)


async def test_large_answers_of_many_calls_share_the_connection() -> None:
    async with served() as (_, channel):
        echo = channel.unary_unary("/t.S/Echo")

        def calls() -> None:
            bodies = [bytes([number]) * (1 << 20) for number in range(16)]
            pending = [echo.future(body) for body in bodies]
            assert [each.result() for each in pending] == bodies

        await run(calls)


async def test_statuses_reach_the_client() -> None:
    async with served() as (_, channel):
        too_large = bytes(5 * 1024 * 1024 + 1)

        def calls() -> None:
            unknown = failure(lambda: channel.unary_unary("/t.S/Other")(b""))
            assert unknown.code() == grpc.StatusCode.UNIMPLEMENTED
            assert unknown.details() == "no method Other: 100 % ä"
            large = failure(lambda: channel.unary_unary("/t.S/Echo")(too_large))
            assert large.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            packed = channel.unary_unary("/t.S/Echo")
            assert packed(b"z" * 9999, compression=grpc.Compression.Gzip) == b"z" * 9999
            other = failure(lambda: packed(b"z" * 9999, compression=grpc.Compression.Deflate))
            assert other.code() == grpc.StatusCode.UNIMPLEMENTED

        await run(calls)


async def test_metadata_reach_the_router() -> None:
    async with served() as (service, channel):
        sent = [("x-mq-client-id", "vm@1@0@abc"), ("x-mq-namespace", ""), ("a-bin", b"\0\xff")]
        await run(lambda: channel.unary_unary("/t.S/Look")(b"", metadata=sent))
        assert service.metadata["x-mq-client-id"] == "vm@1@0@abc"
        assert service.metadata["x-mq-namespace"] == ""
        assert service.metadata["a-bin"] == "AP8"
        assert service.metadata["user-agent"].startswith("grpc-python/")


async def test_a_deadline_ends_a_call_on_both_sides() -> None:
    async with served() as (service, channel):
        wait = channel.unary_unary("/t.S/Wait")
        late = await run(lambda: failure(lambda: wait(b"", timeout=0.1)))
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        with trio.fail_after(PATIENCE_S):
            await service.cancelled.wait()


async def test_a_cancelled_call_is_cancelled_in_the_server() -> None:
    async with served() as (service, channel):

        def cancel() -> None:
            call = channel.stream_stream("/t.S/Wait")(iter([b"x"]))
            # The headers are on their way once another call was answered.
            channel.unary_unary("/t.S/Echo")(b"")
            call.cancel()

        await run(cancel)
        with trio.fail_after(PATIENCE_S):
            await service.cancelled.wait()


async def test_a_client_goes_elsewhere_when_its_server_drains() -> None:
    draining = Draining()
    async with served(draining) as (_, channel):
        echo = channel.unary_unary("/t.S/Echo")
        assert await run(lambda: echo(b"before")) == b"before"
        draining.begin()
        with trio.fail_after(PATIENCE_S):
            while draining.connections:  # noqa: ASYNC110 (nothing tells a test of it)
                await trio.sleep(0.01)
        draining.has_begun = False  # another server at the same address
        assert await run(lambda: echo(b"after", wait_for_ready=True)) == b"after"
