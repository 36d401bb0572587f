"""Pauses between attempts."""

from __future__ import annotations

import random

import trio

# A tenth of the shortest election.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Pauses:
    """Pauses, each twice as long as the one before, up to `longest_s`.

    Args:
        spread: pauses are longer or shorter by up to this share, so that they differ between the
            clients of a leader, which all lose it at once.
    """

    def __init__(self, longest_s: float = LONGEST_PAUSE_S, spread: float = 0.5) -> None:
        self._longest_s = longest_s
        self._spread = spread
        self._next_s = FIRST_PAUSE_S

    async def pause(self) -> None:
        """Sleep, and double the next pause."""
        spread = random.uniform(-self._spread, self._spread) if self._spread else 0.0
        length_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        await trio.sleep(length_s * (1 + spread))

    def restart(self) -> None:
        self._next_s = FIRST_PAUSE_S
