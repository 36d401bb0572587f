"""The TLS handshakes that a server does at a time.

A handshake takes about a millisecond of the event loop, and a client can leave one unfinished. So
few are done at a time, and few of them with one host; all others wait.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

# As on the port of the log.
MAX_HANDSHAKES: Final = 64

# Of these with one host: one alone cannot take all places.
MAX_HANDSHAKES_OF_A_HOST: Final = 16


@dataclass(slots=True)
class _OfHost:
    users: int = 0
    places: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(MAX_HANDSHAKES_OF_A_HOST))


class HandshakePlaces:
    def __init__(self) -> None:
        self._places = trio.Semaphore(MAX_HANDSHAKES)
        self._hosts: dict[str, _OfHost] = {}

    @asynccontextmanager
    async def place(self, host: str) -> AsyncIterator[None]:
        """Hold a place while the block runs; wait for it before, in the order of these calls."""
        of_host = self._hosts.setdefault(host, _OfHost())
        of_host.users += 1
        try:
            async with of_host.places, self._places:
                yield
        finally:
            of_host.users -= 1
            if not of_host.users:
                del self._hosts[host]
