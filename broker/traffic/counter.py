"""Sums over the last minute, hour and day."""

from typing import Final, NamedTuple

_BUCKET_SECONDS: Final = 10


class Total(NamedTuple):
    """A sum over some time.

    Attributes:
        sum: of what was counted.
        times: how often something was.
        seconds: how long that took, the present bucket with it.
    """

    sum: int
    times: int
    seconds: int

    @property
    def per_second(self) -> float:
        """Its rate."""
        return self.sum / self.seconds

    @property
    def average(self) -> float:
        """What was counted each time."""
        return self.sum / self.times if self.times else 0.0


class _Ring:
    """The last buckets of one length."""

    __slots__ = ("_bucket_seconds", "_latest", "_sums", "_times")

    def __init__(self, bucket_seconds: int, buckets: int) -> None:
        self._bucket_seconds = bucket_seconds
        self._sums = [0] * buckets
        self._times = [0] * buckets
        self._latest = 0

    def add(self, second: int, amount: int, times: int) -> None:
        number = self._begin(second)
        self._sums[number % len(self._sums)] += amount
        self._times[number % len(self._sums)] += times

    def total(self, second: int) -> Total:
        self._begin(second)
        # Whole buckets, and the begin of the present one.
        seconds = (len(self._sums) - 1) * self._bucket_seconds + second % self._bucket_seconds
        return Total(sum(self._sums), sum(self._times), max(1, seconds))

    def _begin(self, second: int) -> int:
        """The number of the bucket of a time; those that it takes the place of are emptied."""
        number = second // self._bucket_seconds
        buckets = len(self._sums)
        for passed in range(max(self._latest + 1, number - buckets + 1), number + 1):
            self._sums[passed % buckets] = self._times[passed % buckets] = 0
        self._latest = max(self._latest, number)
        return self._latest


class Counter:
    """Counts one thing, in buckets of 10 seconds, ten minutes and an hour, as RocketMQ samples.

    Attributes:
        sum: of everything.
        last_second: when something was counted last.
    """

    __slots__ = ("_amount", "_day", "_hour", "_minute", "_times", "last_second", "sum")

    def __init__(self) -> None:
        self._minute = _Ring(_BUCKET_SECONDS, 7)
        self._hour = _Ring(600, 7)
        self._day = _Ring(3600, 25)
        self.sum = 0
        self.last_second = 0
        self._amount = self._times = 0  # counted in the present 10 seconds, not in the rings yet

    def add(self, second: int, amount: int = 1, times: int = 1) -> None:
        """Count something at a time in whole seconds, which never goes back."""
        if second // _BUCKET_SECONDS != self.last_second // _BUCKET_SECONDS:
            self._settle()
        self.last_second = second
        self.sum += amount
        self._amount += amount
        self._times += times

    def minute(self, second: int) -> Total:
        """The last minute."""
        self._settle()
        return self._minute.total(second)

    def hour(self, second: int) -> Total:
        """The last hour."""
        self._settle()
        return self._hour.total(second)

    def day(self, second: int) -> Total:
        """The last day."""
        self._settle()
        return self._day.total(second)

    def _settle(self) -> None:
        if self._times:
            for ring in (self._minute, self._hour, self._day):
                ring.add(self.last_second, self._amount, self._times)
            self._amount = self._times = 0
