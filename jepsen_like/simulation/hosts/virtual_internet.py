"""The network between virtual machines: lines that delay, are cut, are slow; and connections."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

import trio

from dledger.config import Address
from dledger.sockets import ACCEPTED
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.plan import LineStyle
from jepsen_like.simulation.hosts.virtual_stream import Pipe, VirtualLine, VirtualStream

# Connections that wait to be accepted; more are refused, as Linux does if configured so.
BACKLOG = 128

Sent = Callable[[str, int, int], None]


class VirtualListener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts at one address, as long as its process lives."""

    def __init__(self, closed: Callable[[], object]) -> None:
        self._send, self._receive = trio.open_memory_channel[trio.abc.Stream](BACKLOG)
        self._closed = closed
        self.is_closed = False

    def offer(self, stream: VirtualStream) -> None:
        """Queue a dialled connection. Raises trio.WouldBlock if too many wait already."""
        self._send.send_nowait(stream)

    async def accept(self) -> trio.abc.Stream:
        return await self._receive.receive()

    def close(self) -> None:
        """Accept no more, and close the connections that wait."""
        if self.is_closed:
            return
        self.is_closed = True
        self._closed()
        self._send.close()
        while True:
            try:
                waiting = self._receive.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            assert isinstance(waiting, VirtualStream)
            waiting.close()
        self._receive.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class Endpoint:
    """One machine's side of the network.

    Attributes:
        is_up: whether the machine runs; if not, it sends no answers.
        refuses: whether it refuses connections even where a process listens.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.refuses = False
        self.listeners: dict[int, VirtualListener] = {}
        # of this machine, with their other ends
        self.streams: dict[VirtualStream, VirtualStream] = {}
        self.unknown: list[VirtualStream] = []  # ends that other machines still have with it


class VirtualInternet:
    """All machines, the lines between them, and their connections.

    `sent` is called with all bytes that are sent.
    """

    def __init__(self, style: LineStyle, chance: Chance, sent: Sent) -> None:
        self._style = style
        self._chance = chance
        self._sent = sent
        self._endpoints: dict[str, Endpoint] = {}
        self._lines: dict[tuple[str, str], VirtualLine] = {}
        self._connections = 0
        self.dials: dict[tuple[str, str], int] = {}  # from one machine to another

    # --- the machines ---------------------------------------------------------------------------

    def add(self, name: str) -> Endpoint:
        endpoint = self._endpoints[name] = Endpoint(name)
        return endpoint

    @property
    def open_streams(self) -> Sequence[VirtualStream]:
        return [stream for endpoint in self._endpoints.values() for stream in endpoint.streams]

    def process_ended(self, endpoint: Endpoint) -> None:
        """Close the connections of an ended process, as its system does: the other ends notice."""
        self._end_listeners(endpoint)
        for stream, other in list(endpoint.streams.items()):
            stream.close()
            other.inward.reset()

    def power_lost(self, endpoint: Endpoint) -> None:
        """Cut the power of the machine: the other ends are not notified."""
        endpoint.is_up = False
        self._end_listeners(endpoint)
        for stream, other in list(endpoint.streams.items()):
            stream.vanish()
            other.peer_is_gone = other.peer_is_silent = True
            if other.is_accepted:
                other.inward.reset_at(trio.current_time() + ACCEPTED.unacknowledged_ms / 1000)
            endpoint.unknown.append(other)
        endpoint.streams.clear()

    def power_back(self, endpoint: Endpoint) -> None:
        """Start the machine again: it resets its old connections, which it does not know."""
        endpoint.is_up = True
        for stream in endpoint.unknown:
            stream.peer_is_silent = False
            if stream.is_accepted:
                stream.inward.reset_at(trio.current_time() + ACCEPTED.idle_s)
            if stream.outward.size:
                stream.inward.reset()
        endpoint.unknown.clear()

    def _end_listeners(self, endpoint: Endpoint) -> None:
        for listener in list(endpoint.listeners.values()):
            listener.close()

    # --- the lines ------------------------------------------------------------------------------

    def line(self, source: str, target: str) -> VirtualLine:
        found = self._lines.get((source, target))
        if found is None:
            chance = Chance(self._chance.getrandbits(62), f"line {source} {target}")
            found = self._lines[source, target] = VirtualLine(self._style, chance)
        return found

    def cut(self, source: str, target: str) -> None:
        self.line(source, target).is_cut = True

    def heal(self) -> None:
        for line in self._lines.values():
            line.is_cut = False
            line.bytes_per_s = None
        for endpoint in self._endpoints.values():
            endpoint.refuses = False
        self._look_again()

    def reset_between(self, one: str, other: str) -> None:
        """Break every connection between two machines, for both."""
        for stream, far in list(self._endpoints[one].streams.items()):
            if far in self._endpoints[other].streams:
                stream.inward.reset()
                far.inward.reset()

    def _look_again(self) -> None:
        for stream in self.open_streams:
            stream.inward.waits.unpark_all()
            stream.outward.waits.unpark_all()

    # --- connections ----------------------------------------------------------------------------

    async def dial(self, here: Endpoint, address: Address) -> VirtualStream:
        """Connect a machine with an address. Raises ConnectionRefusedError."""
        there = self._endpoints.get(address.host)
        if there is None:
            raise OSError(errno.EHOSTUNREACH, "no such machine on the virtual network")
        between = here.name, there.name
        self.dials[between] = self.dials.get(between, 0) + 1
        out, back = self.line(here.name, there.name), self.line(there.name, here.name)
        await self._trip(out, there)
        listener = there.listeners.get(address.port)
        if listener is None or there.refuses:
            await self._trip(back, here)
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens there")
        near, far = self._connected(here, there, out, back)
        try:
            listener.offer(far)
            await self._trip(back, here)
        except trio.WouldBlock:
            near.close()
            far.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "too many wait there") from None
        except BaseException:
            near.close()
            raise
        return near

    async def _trip(self, line: VirtualLine, target: Endpoint) -> None:
        """Wait until a packet has arrived; it is sent again until it does."""
        again_s = 1.0
        while True:
            at = line.arrives_at(0)
            if not line.is_cut and target.is_up:
                await trio.sleep_until(at)
                return
            await trio.sleep(again_s)
            again_s *= 2

    def _connected(
        self, here: Endpoint, there: Endpoint, out: VirtualLine, back: VirtualLine
    ) -> tuple[VirtualStream, VirtualStream]:
        self._connections += 1
        name = f"{here.name}-{there.name}-{self._connections}"
        outward, inward = Pipe(out), Pipe(back)
        near = VirtualStream(
            name, inward, outward, self._sent, partial(self._stream_closed, here, there)
        )
        far = VirtualStream(
            f"{name}'", outward, inward, self._sent, partial(self._stream_closed, there, here)
        )
        far.is_accepted = True
        here.streams[near] = far
        there.streams[far] = near
        return near, far

    def _stream_closed(self, own: Endpoint, others: Endpoint, stream: VirtualStream) -> None:
        far = own.streams.pop(stream, None)
        if far is not None:
            far.peer_is_gone = True


class MachineNetwork:
    """The network as one process of a machine sees it: a `Network` of dledger.

    `is_alive` returns whether the process still runs; a killed one sends nothing.
    """

    def __init__(
        self, internet: VirtualInternet, endpoint: Endpoint, is_alive: Callable[[], bool]
    ) -> None:
        self._internet = internet
        self._endpoint = endpoint
        self._is_alive = is_alive

    async def dial(self, address: Address) -> trio.abc.Stream:
        if not self._is_alive():
            raise ConnectionAbortedError(errno.ECONNABORTED, "this process has ended")
        return await self._internet.dial(self._endpoint, address)

    async def listen(self, address: Address) -> Sequence[trio.abc.Listener[trio.abc.Stream]]:
        await trio.lowlevel.checkpoint()
        listeners = self._endpoint.listeners
        if address.host != self._endpoint.name or not self._is_alive():
            raise OSError(errno.EADDRNOTAVAIL, "not an address of this machine")
        if address.port in listeners:
            raise OSError(errno.EADDRINUSE, "something listens there already")
        listener = VirtualListener(partial(listeners.pop, address.port))
        listeners[address.port] = listener
        return [listener]
