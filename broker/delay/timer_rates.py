"""How many delayed messages come and go a second."""

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.delay.state import Delays

# Samples are ten seconds apart: rates are those of the last minute.
_SAMPLES: Final = 7


class TimerRates:
    """Looks at the counts again and again.

    Args:
        delays: the delayed messages.
        clock: seconds on the monotonic clock.
    """

    def __init__(self, delays: Delays, clock: Callable[[], float]) -> None:
        self._delays = delays
        self._clock = clock
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=_SAMPLES)

    def sample(self) -> None:
        """Remember the counts; called every ten seconds."""
        self._samples.append(self._now())

    def _now(self) -> tuple[float, int, int]:
        gone = self._delays.delivered + self._delays.dropped
        return self._clock(), gone + len(self._delays.waiting), gone

    def rates(self) -> tuple[float, float]:
        """How many came and how many went, a second, over the last minute."""
        at, came, went = self._now()
        began, came_before, went_before = self._samples[0] if self._samples else (at, came, went)
        if at <= began:
            return 0.0, 0.0
        return (came - came_before) / (at - began), (went - went_before) / (at - began)
