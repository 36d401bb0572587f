"""How long messages take from the append until they are committed and applied."""

from bisect import bisect_left
from math import exp, log
from typing import Final

from broker.serving.parts import Shared

# The upper bounds of RocketMQ's classes.
_BOUNDS_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES: Final = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)

# Percentiles use other classes, each a twentieth longer than the one before it: from 50 us to more
# than a minute.
_FIRST_S: Final = 0.00005
_STEP: Final = log(1.05)
_CLASSES: Final = 300

# Percentiles are computed over the current span and the one before it, as in RocketMQ.
SPAN_S: Final = 60.0


class PutTimes:
    """Counts messages by how long they took.

    `failed`: messages that were refused, or whose outcome is unknown.
    """

    def __init__(self) -> None:
        self._counts = [0] * len(_NAMES)
        self._recent = [0] * _CLASSES
        self._before = [0] * _CLASSES
        self._span_began = 0.0
        self.slowest_ms = 0
        self.failed = 0

    def add(self, took_s: float, messages: int) -> None:
        """Count messages that took so long together."""
        took_ms = int(took_s * 1000)
        self._counts[bisect_left(_BOUNDS_MS, took_ms)] += messages
        self.slowest_ms = max(self.slowest_ms, took_ms)
        place = int(log(max(took_s, _FIRST_S) / _FIRST_S) / _STEP)
        self._recent[min(place, _CLASSES - 1)] += messages

    def look(self, now: float) -> None:
        """Check the clock, in seconds; several times per span."""
        if now - self._span_began >= SPAN_S:
            self._span_began = now
            self._before, self._recent = self._recent, [0] * _CLASSES

    def percentile_ms(self, share: float) -> float:
        """Return the time within which this share of the last minute's messages was stored; 0 for
        none.
        """
        counts = [sum(pair) for pair in zip(self._before, self._recent, strict=True)]
        within = share * sum(counts)
        so_far = 0
        for place, count in enumerate(counts):
            so_far += count
            if count and so_far >= within:
                return 1000 * _FIRST_S * exp(_STEP * (place + 1))
        return 0.0

    def __str__(self) -> str:
        return " ".join(
            f"[{name}]:{count}" for name, count in zip(_NAMES, self._counts, strict=True)
        )


PUT_TIMES: Final = Shared("put times", lambda _parts: PutTimes())
