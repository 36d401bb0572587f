"""How much a check may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What a search may remember. With the history itself a check stays below 1 GB or so.
MEMORY_BYTES_MAX = 700_000_000


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Bounds:
    """Ends a search that takes too long or too much; its verdict is then unknown.

    Args:
        out_of_time: says whether the time is over; it is asked a few times a second.
        memory_bytes_max: what the search may remember, estimated.
    """

    out_of_time: Callable[[], bool] = _never
    memory_bytes_max: int = MEMORY_BYTES_MAX
