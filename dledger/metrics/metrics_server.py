"""Answers `GET /metrics`, `/healthz` and `/readyz`, and nothing else.

h11 reads the requests. The HTTP server for trio, hypercorn, would bring HTTP/2, WebSockets and ASGI
with a package for each, and a configuration and signals of its own, for three pages of text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

import h11
import trio
from prometheus_client.core import Metric

from dledger.config import Address, parse_address
from dledger.metrics.exposition import CONTENT_TYPE, rendered
from dledger.metrics.readiness import reasons
from dledger.network.binding import bind
from dledger.network.network import TCP
from dledger.node.node import Node
from dledger.shown_output import escaped
from dledger.sockets import serve_accepted

logger = logging.getLogger(__name__)

# A scraper asks within a moment of connecting, and again in some seconds at most.
REQUEST_TIMEOUT_S = 10.0
# Scrapers are few; more than these are a mistake or an attack.
MAX_CONNECTIONS = 16
# Many times a request line and the headers of a scraper.
MAX_HEAD_BYTES = 16 * 1024

_PLAIN = "text/plain; charset=utf-8"

# Returns what a process waits for, a line each; nothing if clients may come.
Waits: TypeAlias = Callable[[], Iterable[str]]


class MetricsServer:
    """A small HTTP server. It calls `text` for each scrape, and takes the parts one by one.

    Any program that reaches the port can ask repeatedly. So one text is made at a time, and after
    each part the rest of the process has at least as much time as the part took. `waits` is called
    for each question whether the process is ready.
    """

    def __init__(self, text: Callable[[], Iterable[bytes]], waits: Waits = tuple) -> None:
        self._text = text
        self._waits = waits
        self._connections = 0
        # Connections without a whole request, the one that has waited longest first.
        self._silent: dict[trio.CancelScope, None] = {}
        self._making = trio.Lock()

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        await serve_accepted(self._serve_one, listeners, "scrapers")

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        if self._connections >= MAX_CONNECTIONS:
            # A probe must get in: silent connections would have a healthy process restarted.
            silent = next(iter(self._silent), None)
            if silent is None:
                await stream.aclose()
                return
            del self._silent[silent]
            silent.cancel()
        self._connections += 1
        try:
            async with stream:
                await self._converse(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            logger.debug("a client of the metrics closed its connection: %s", error)
        except h11.RemoteProtocolError as error:
            logger.debug("not HTTP, on the address for metrics: %s", error)
        finally:
            self._connections -= 1

    async def _converse(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        while True:
            with trio.fail_after(REQUEST_TIMEOUT_S):
                request = None
                with trio.CancelScope() as silent:
                    self._silent[silent] = None
                    try:
                        request = await _request(connection, stream)
                    finally:
                        self._silent.pop(silent, None)
                if request is None:
                    return
                for event in await self._answer(request):
                    if (data := connection.send(event)) is not None:
                        await stream.send_all(data)
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    async def _answer(self, request: h11.Request) -> list[h11.Event]:
        page = request.target.partition(b"?")[0]
        if page not in (b"/metrics", b"/healthz", b"/readyz"):
            return _response(404, _PLAIN, b"look at /metrics, /healthz or /readyz\n", request)
        if request.method not in (b"GET", b"HEAD"):
            return _response(405, _PLAIN, b"GET or HEAD\n", request)
        if page == b"/metrics":
            return _response(200, CONTENT_TYPE, await self.made(), request)
        # The answer itself shows that the loop runs. A member that fails ends its process.
        if page == b"/healthz" or not (lines := [escaped(each) for each in self._waits()]):
            return _response(200, _PLAIN, b"ok\n", request)
        return _response(503, _PLAIN, "".join(f"{each}\n" for each in lines).encode(), request)

    async def made(self) -> bytes:
        parts = []
        async with self._making:
            began = trio.current_time()
            for part in self._text():
                parts.append(part)
                await trio.sleep(trio.current_time() - began)
                began = trio.current_time()
        return b"".join(parts)


async def _request(connection: h11.Connection, stream: trio.SocketStream) -> h11.Request | None:
    """Read the next request; None at the end of the stream."""
    request = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(MAX_HEAD_BYTES)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed):
            return None


def _response(status: int, kind: str, body: bytes, request: h11.Request) -> list[h11.Event]:
    headers = [("content-type", kind), ("content-length", str(len(body)))]
    head = h11.Response(status_code=status, headers=headers)
    if request.method == b"HEAD":
        return [head, h11.EndOfMessage()]
    return [head, h11.Data(data=body), h11.EndOfMessage()]


async def serve_nodes(
    nodes: Callable[[], Iterable[Node]],
    address: str,
    more: Callable[[], Iterable[Metric]] | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    waits: Waits = tuple,
) -> None:
    await serve_text(
        lambda: rendered(
            ((node.status(), node.tally) for node in nodes()), () if more is None else more()
        ),
        parse_address("metrics", address),
        task_status,
        lambda: [*reasons(node.status() for node in nodes()), *waits()],
    )


async def serve_figures(
    address: str,
    figures: Callable[[], Iterable[Metric]],
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the metrics of a process without a node."""
    await serve_text(
        lambda: rendered((), figures()), parse_address("metrics", address), task_status
    )


async def serve_text(
    text: Callable[[], Iterable[bytes]],
    address: Address,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    waits: Waits = tuple,
) -> None:
    """Serve any text as metrics. Raises as `bind`."""
    server = MetricsServer(text, waits)
    listeners = await bind("metrics", address, TCP.listen)
    task_status.started(listeners[0].socket.getsockname()[1])
    await server.serve(listeners)
