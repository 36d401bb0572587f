"""Counts what a consumer consumes, by topic, over the last minute and hour.

Source: RocketMQ's ConsumerStatsManager. The answer to request 307 has the counts.
"""

from collections.abc import Callable
from typing import Final

from dledger_mq.connection.running_info import ConsumeStatus

# Steps in seconds of the two windows, the last minute and the last hour.
_MINUTE_STEP: Final = 10
_HOUR_STEP: Final = 600
_STEPS: Final = 6


class _Window:
    """A sum over the last steps, the current one included."""

    __slots__ = ("_latest", "_step", "_sums")

    def __init__(self, step: int) -> None:
        self._step = step
        self._sums = [0.0] * (_STEPS + 1)
        self._latest = 0

    def add(self, now: float, amount: float) -> None:
        self._sums[self._begin(now)] += amount

    def sum(self, now: float) -> float:
        self._begin(now)
        return sum(self._sums)

    def _begin(self, now: float) -> int:
        number = max(self._latest, int(now // self._step))
        for passed in range(max(self._latest + 1, number - _STEPS), number + 1):
            self._sums[passed % (_STEPS + 1)] = 0.0
        self._latest = number
        return number % (_STEPS + 1)


class _Topic:
    __slots__ = ("calls", "consumed", "failed", "failed_in_hour", "took_s")

    def __init__(self) -> None:
        self.consumed = _Window(_MINUTE_STEP)
        self.failed = _Window(_MINUTE_STEP)
        self.failed_in_hour = _Window(_HOUR_STEP)
        self.calls = _Window(_MINUTE_STEP)
        self.took_s = _Window(_MINUTE_STEP)


class ConsumeTally:
    """Counts the calls of a listener, by topic. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def called(self, topic: str, messages: int, took_s: float, *, is_consumed: bool) -> None:
        now = self._clock()
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = _Topic()
        counts.calls.add(now, 1)
        counts.took_s.add(now, took_s)
        if is_consumed:
            counts.consumed.add(now, messages)
        else:
            counts.failed.add(now, messages)
            counts.failed_in_hour.add(now, messages)

    def statuses(self) -> dict[str, ConsumeStatus]:
        now = self._clock()
        # All whole steps, and the part of the current one.
        window_s = _MINUTE_STEP * _STEPS + now % _MINUTE_STEP
        return {
            topic: ConsumeStatus(
                counts.consumed.sum(now) / window_s,
                counts.failed.sum(now) / window_s,
                1000 * counts.took_s.sum(now) / max(1.0, counts.calls.sum(now)),
                round(counts.failed_in_hour.sum(now)),
            )
            for topic, counts in sorted(self._topics.items())
        }
