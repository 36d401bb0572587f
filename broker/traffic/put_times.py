"""How long messages take from the log's door until they are committed and applied."""

from bisect import bisect_left
from typing import Final

from broker.serving.parts import Shared

# RocketMQ's classes: up to so many milliseconds.
_BOUNDS_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)


class PutTimes:
    """Counts messages by how long they took.

    Attributes:
        slowest_ms: of all.
    """

    def __init__(self) -> None:
        self._counts = [0] * len(_NAMES)
        self.slowest_ms = 0

    def add(self, seconds: float, messages: int) -> None:
        """So many messages took so long together."""
        took_ms = int(seconds * 1000)
        self._counts[bisect_left(_BOUNDS_MS, took_ms)] += messages
        self.slowest_ms = max(self.slowest_ms, took_ms)

    def __str__(self) -> str:
        """As RocketMQ's tools show it."""
        return " ".join(
            f"[{name}]:{count}" for name, count in zip(_NAMES, self._counts, strict=True)
        )


PUT_TIMES: Final = Shared("put times", lambda _parts: PutTimes())
