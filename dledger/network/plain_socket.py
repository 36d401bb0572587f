"""Reads and writes of plain connections, with less between them and the system than a stream has.

A message costs a stream of trio two reads, of which the first finds nothing, and as much time again
in wrappers. Not for TLS, where only the stream knows what the bytes mean.
"""

from __future__ import annotations

import os

import trio

from dledger.network.tls import Stream

# In the place of a descriptor: with TLS everything goes through the stream.
NO_DESCRIPTOR = -1


def plain_descriptor(stream: Stream) -> int:
    """The descriptor of a plain connection; NO_DESCRIPTOR for one with TLS."""
    return stream.socket.fileno() if isinstance(stream, trio.SocketStream) else NO_DESCRIPTOR


def write_now(descriptor: int, frame: bytes) -> bytes:
    """Write what the socket takes; the rest, for which the writing task has to wait.

    It spares the wake-up of that task. An error is that task's as well: it meets the same one, and
    ends the connection.
    """
    try:
        return frame[os.write(descriptor, frame) :]
    except OSError:
        return frame


async def read_some(descriptor: int, max_bytes: int) -> bytes:
    """Wait until something has come, and take it; nothing at the end of the stream.

    Raises trio.BrokenResourceError, and trio.ClosedResourceError once it is closed here.
    """
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        try:
            return os.read(descriptor, max_bytes)
        except BlockingIOError:
            continue
        except OSError as error:
            raise trio.BrokenResourceError(f"the connection broke: {error}") from error
