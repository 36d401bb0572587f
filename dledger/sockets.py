"""Makes the TCP sockets of all servers and clients, which notice that the peer is gone.

A firewall that drops packets, or a router that forgot a connection, tells neither side. The system
would send unacknowledged bytes again ever more seldom, up to every two minutes, and would never
probe an idle connection. So every socket is made here, with a limit for unacknowledged bytes
(TCP_USER_TIMEOUT) and one for silence (SO_KEEPALIVE).

These limits do not notice a frozen process, because its system goes on acknowledging. A caller that
waits for an answer needs a time limit of its own.

Source: tcp(7). Linux ends a silent connection by TCP_USER_TIMEOUT, too; other systems after the
number of probes.
"""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

import trio

from dledger.system_refusals import Kind, Refusal, is_of, meaning, refusal_of

logger = logging.getLogger(__name__)

StreamT = TypeVar("StreamT", bound=trio.abc.AsyncResource)

# Connections that wait to be accepted: the backlog of trio's own listeners.
_BACKLOG: Final = 65535

# How long to wait when the process has no descriptor for another connection. Connections end all
# the time, and the system keeps those that wait.
ACCEPT_PAUSE_S: Final = 0.1

# A lasting state is logged this often: a flood of connections must not flood the log.
TELL_S: Final = 60.0


class SilenceLimits(NamedTuple):
    """When a connection to a silent peer is given up.

    Attributes:
        unacknowledged_ms: sent bytes may stay unacknowledged for this long.
        idle_s: a connection silent for this long is probed,
        probe_every_s: and again at this interval, until `unacknowledged_ms` have passed.
    """

    unacknowledged_ms: int
    idle_s: int
    probe_every_s: int

    @property
    def probes(self) -> int:
        """The number of unanswered probes in a row that end a connection."""
        return (self.unacknowledged_ms // 1000 - self.idle_s) // self.probe_every_s


# A client recovers by dialling again, so this limit is how late it begins to recover. The system's
# next attempt would come 6 s later, and its earlier ones get over a short cut. Three probes lost in
# a row end a silent connection: at a loss of one packet in a hundred, one connection in a million.
DIALLED: Final = SilenceLimits(unacknowledged_ms=5_000, idle_s=2, probe_every_s=1)

# A server only forgets the client, and may probe thousands of connections. The system also counts
# bytes that the peer has no room for as unacknowledged, so this limit ends connections to peers
# that do not read, too: servers of `remoting` give them the same time.
ACCEPTED: Final = SilenceLimits(unacknowledged_ms=15_000, idle_s=5, probe_every_s=2)


class TakesOptions(Protocol):
    """A socket, or a stream over one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def limit_silence(made: TakesOptions, limits: SilenceLimits) -> None:
    """Set these limits on a socket; accepted connections inherit those of their listener."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", limits.unacknowledged_ms),  # Linux
        ("TCP_KEEPIDLE", limits.idle_s),
        ("TCP_KEEPALIVE", limits.idle_s),  # the same on macOS
        ("TCP_KEEPINTVL", limits.probe_every_s),
        ("TCP_KEEPCNT", limits.probes),
    ):
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)


async def dialled(host: str, port: int) -> trio.SocketStream:
    """Connect to an address. trio sets TCP_NODELAY.

    Raises OSError.
    """
    try:
        with _name_is_possible(host):
            stream = await trio.open_tcp_stream(host, port)
    except RuntimeError as error:  # names are looked up in a thread
        if not is_of(Kind.THREADS, error):
            raise
        raise OSError(errno.EAGAIN, meaning(error)) from error
    try:
        limit_silence(stream, DIALLED)
    except OSError:  # some systems refuse options of a connection that has ended already
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def listening(
    host: str | None, port: int, *, is_shared: bool = False
) -> list[trio.SocketListener]:
    """Listen on an address. trio sets TCP_NODELAY on accepted connections.

    Args:
        host: an address of this machine; None, "0.0.0.0" and "::" are all of them.
        port: 0 takes a free one.
        is_shared: other processes of the same user may listen on the same port in the same way, and
            the system spreads connections over all of them (SO_REUSEPORT). `host` is an IPv4
            address.

    Raises OSError.
    """
    if is_shared:
        assert host is not None
        listeners = [await _shared(host, port)]
    else:
        with _name_is_possible(host):
            listeners = await trio.open_tcp_listeners(port, host=host)
    for listener in listeners:
        limit_silence(listener.socket, ACCEPTED)
    return listeners


async def accepted(
    listener: trio.abc.Listener[StreamT], tell: Callable[[Refusal], None]
) -> StreamT:
    """Accept a connection; without a descriptor or memory for one, tell, wait and try again."""
    while True:
        try:
            return await listener.accept()
        except OSError as error:
            found = refusal_of(error)
            if found is None or found.kind not in (Kind.DESCRIPTORS, Kind.MEMORY):
                raise
            tell(found)
            await trio.sleep(ACCEPT_PAUSE_S)


async def serve_accepted(
    serve: Callable[[StreamT], Awaitable[None]],
    listeners: Sequence[trio.abc.Listener[StreamT]],
    what: str,
) -> None:
    """Serve the connections of listeners until cancelled; then close both.

    Args:
        serve: serves a connection, and closes it.
        listeners: of `listening`.
        what: their clients, for a line in the log when no connection can be accepted.
    """
    told_at = -math.inf

    def tell(refusal: Refusal) -> None:
        nonlocal told_at
        if (now := trio.current_time()) >= told_at + TELL_S:
            told_at = now
            logger.warning(
                "no connection of %s can be accepted: %s; %s", what, refusal.meaning, refusal.cure
            )

    async def accept(listener: trio.abc.Listener[StreamT]) -> None:
        async with listener:
            while True:
                nursery.start_soon(serve, await accepted(listener, tell))

    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(accept, listener)


@contextmanager
def _name_is_possible(host: str | None) -> Iterator[None]:
    """Turn the UnicodeError for a name that the domain name system cannot have into an OSError."""
    try:
        yield
    except UnicodeError as error:
        raise OSError(f"no machine is named {host!r:.100}: {error}") from None


async def _shared(host: str, port: int) -> trio.SocketListener:
    made = trio.socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        await made.bind((host, port))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return trio.SocketListener(made)
