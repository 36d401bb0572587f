"""Makes the bodies of the no-ops that this member appends when it leads."""

from __future__ import annotations

from collections.abc import Callable

from dledger.store.noop_body import BIRTH_BYTES, NoopBody, encode_noop_body

# Bytes drawn from one random float, which has 53 random bits.
_DRAWN_BYTES = 4


class LeaderNoops:
    """Makes bodies with the leader and the time, and in entry 0 with a random birth of the group.

    Args:
        node_id: this member.
        wall_clock_ms: milliseconds since 1970.
        chance: a random number from 0 to 1.
    """

    def __init__(
        self, node_id: str, wall_clock_ms: Callable[[], int], chance: Callable[[], float]
    ) -> None:
        self._node_id = node_id
        self._wall_clock_ms = wall_clock_ms
        self._chance = chance

    def body(self, index: int) -> bytes:
        birth = self._draw_birth() if index == 0 else b""
        return encode_noop_body(NoopBody(self._node_id, max(self._wall_clock_ms(), 0), birth))

    def _draw_birth(self) -> bytes:
        draws = range(BIRTH_BYTES // _DRAWN_BYTES)
        parts = [int(self._chance() * 2 ** (8 * _DRAWN_BYTES)) for _ in draws]
        return b"".join(part.to_bytes(_DRAWN_BYTES, "big") for part in parts)
