"""Reads and writes plain connections by system calls at once, as far as the socket lets them."""

import os


def write_now(descriptor: int, frame: bytes) -> int:
    """Write what the socket takes at once; return how many bytes.

    An error is ignored here: the task that writes the rest meets the same one.
    """
    try:
        return os.write(descriptor, frame)
    except OSError:
        return 0


def read_now(descriptor: int, max_bytes: int) -> bytes | None:
    """Read what is there; empty at the end of the stream, None when nothing has come.

    Raises OSError: the connection broke.
    """
    try:
        return os.read(descriptor, max_bytes)
    except BlockingIOError:
        return None
