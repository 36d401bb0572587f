"""Reads and writes plain connections by system calls, without trio's streams.

A stream of trio takes two reads for a message, the first of which finds nothing, and as much time
again in wrappers. Connections with TLS go through the stream, which encrypts.
"""

from __future__ import annotations

import os

import trio

from dledger.network.tls import Stream

# Stands for the descriptor of a connection with TLS, which is used through its stream only.
NO_DESCRIPTOR = -1


def plain_descriptor(stream: Stream) -> int:
    """Return the descriptor of a plain connection; NO_DESCRIPTOR for one with TLS."""
    return stream.socket.fileno() if isinstance(stream, trio.SocketStream) else NO_DESCRIPTOR


def write_now(descriptor: int, frame: bytes) -> int:
    """Write as much as the socket takes at once; return the number of bytes.

    This saves a wake-up of the writing task, which writes the rest. An error is ignored here: that
    task meets the same one, and ends the connection.
    """
    try:
        return os.write(descriptor, frame)
    except OSError:
        return 0


def read_now(descriptor: int, max_bytes: int) -> bytes | None:
    """Read available bytes; empty at the end of the stream, None if there are none yet.

    Raises OSError if the connection broke.
    """
    try:
        return os.read(descriptor, max_bytes)
    except BlockingIOError:
        return None


async def read_some(descriptor: int, max_bytes: int) -> bytes:
    """Wait for bytes and return them; empty at the end of the stream.

    Raises trio.BrokenResourceError, and trio.ClosedResourceError after this side closed it.
    """
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        try:
            data = read_now(descriptor, max_bytes)
        except OSError as error:
            raise trio.BrokenResourceError(f"the connection broke: {error}") from error
        if data is not None:
            return data
