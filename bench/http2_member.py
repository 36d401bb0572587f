"""The process of a server of gRPC that is measured: `python -m bench.http2_member ours`, or `grpc`.

It prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

import trio

from proxy.http2.call import Call
from proxy.http2.limits import Limits
from proxy.http2.server import serve_connection

ANSWER = bytes(120)
UNARY, OPEN = "/bench/Unary", "/bench/Open"


async def route(call: Call) -> None:
    """Answer a message, or hold the call open."""
    if call.path == UNARY:
        if await call.receive() is not None:
            await call.send(ANSWER)
    else:
        await call.open()
        while await call.receive() is not None:
            pass


async def serve_ours() -> None:
    async def take(stream: trio.SocketStream) -> None:
        await serve_connection(stream, route, Limits(), "127.0.0.1:0")

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, take, listeners)
        print(listeners[0].socket.getsockname()[1], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def serve_grpc() -> None:
    """Serve the same by `grpc.aio`."""
    import grpc  # noqa: PLC0415 (a peer, which need not be installed)
    import grpc.aio  # noqa: PLC0415

    async def unary(request: bytes, context: object) -> bytes:
        return ANSWER

    async def hold(requests: object, context: grpc.aio.ServicerContext) -> None:
        await context.send_initial_metadata(())
        while await context.read() is not grpc.aio.EOF:
            pass

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Open": grpc.stream_stream_rpc_method_handler(hold),
    }
    server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 1000)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        trio.run(serve_ours)
    else:
        asyncio.run(serve_grpc())
