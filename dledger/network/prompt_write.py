"""Writes to a connection at once, which spares the wake-up of the task that writes for it.

Not for TLS: there only one at a time may write, and everything goes through that task.
"""

from __future__ import annotations

import os


def write_now(descriptor: int, frame: bytes) -> bytes:
    """Write what the socket takes; the rest, for which the writing task has to wait.

    An error is that task's as well: it meets the same one, and ends the connection.
    """
    try:
        return frame[os.write(descriptor, frame) :]
    except OSError:
        return frame
