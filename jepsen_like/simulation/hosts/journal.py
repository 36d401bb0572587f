"""The journal of a run: a trace for people, a sum for comparing runs, counts."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

import trio

from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.trace import Trace

_SENT = Struct(">dII")


class Journal:
    """The journal of one run; `bytes_sent` counts those on the virtual network."""

    def __init__(self, trace: Trace | None) -> None:
        self.coverage = Coverage()
        self.bytes_sent = 0
        self._trace = trace
        self._sum = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Equal for two runs only if their events, sent bytes and times are the same."""
        return self._sum.hexdigest()

    def sent(self, stream: str, size: int, content_sum: int) -> None:
        """Note bytes that were sent on a stream."""
        self.bytes_sent += size
        self._sum.update(stream.encode())
        self._sum.update(_SENT.pack(trio.current_time(), size, content_sum))

    def note(self, who: str, what: str) -> None:
        now = trio.current_time()
        self._sum.update(f"{now!r} {who} {what}".encode())
        if self._trace is not None:
            self._trace.note(now, who, what)

    def count(self, what: str, who: str = "-", how: str = "") -> None:
        """Note an event, and count it as `what`."""
        self.coverage.count(what)
        self.note(who, f"{what}{': ' if how else ''}{how}")
