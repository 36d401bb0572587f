"""Has connections reset, rather than closed in order, when their process dies.

The system closes the connections of a dead process. An orderly close looks like that of a server
that has sent all its answers. Java's clients of version 4 only note then that the connection is
gone: their requests on it wait for their timeouts, 30 s for a pull. A reset is an error, on which
they fail all requests of the connection at once.

A reset drops bytes that the peer has not taken yet. So a server that ends a connection while it
lives calls `end_in_order` before, unless it leaves requests without their answers.

Source: socket(7), SO_LINGER: a linger time of zero.
"""

import socket
import struct
from typing import Final

import trio

from dledger.network.secure_stream import SecureStream
from remoting.net.reads_in_turns import ReadsInTurns

# struct linger: whether to linger, and for how many seconds.
_RESET: Final = struct.pack("ii", 1, 0)
_IN_ORDER: Final = struct.pack("ii", 0, 0)


def reset_on_death(stream: trio.SocketStream) -> None:
    """Reset the connection when it is closed, also by the end of the process."""
    _set_linger(stream, _RESET)


def end_in_order(stream: trio.abc.Stream) -> None:
    """Undo `reset_on_death`: the peer gets all sent bytes, and then the end. TLS included."""
    while isinstance(stream, SecureStream | ReadsInTurns):
        stream = stream.transport_stream
    if isinstance(stream, trio.SocketStream):
        _set_linger(stream, _IN_ORDER)


def _set_linger(stream: trio.SocketStream, linger: bytes) -> None:
    try:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    except OSError:
        return  # it is closed already
