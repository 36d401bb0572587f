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
    """The descriptor of a plain connection; NO_DESCRIPTOR for one with TLS."""
    return stream.socket.fileno() if isinstance(stream, trio.SocketStream) else NO_DESCRIPTOR


def write_now(descriptor: int, frame: bytes) -> bytes:
    """Write what the socket takes at once, and return the rest for the writing task.

    This saves a wake-up of that task. An error is ignored here: the writing task meets the same
    one, and ends the connection.
    """
    try:
        return frame[os.write(descriptor, frame) :]
    except OSError:
        return frame


async def read_some(descriptor: int, max_bytes: int) -> bytes:
    """Wait for bytes and return them; empty at the end of the stream.

    Raises trio.BrokenResourceError, and trio.ClosedResourceError after this side closed it.
    """
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        try:
            return os.read(descriptor, max_bytes)
        except BlockingIOError:
            continue
        except OSError as error:
            raise trio.BrokenResourceError(f"the connection broke: {error}") from error
