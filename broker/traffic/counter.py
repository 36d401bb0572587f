"""Sums over the last minute, hour and day."""

from array import array
from typing import Final, NamedTuple

_BUCKET_S: Final = 10


class Total(NamedTuple):
    """A sum over some time.

    Attributes:
        sum: of the amounts.
        times: how often something was counted.
        over_s: how long that took, including the current bucket.
    """

    sum: int
    times: int
    over_s: int

    @property
    def per_second(self) -> float:
        return self.sum / self.over_s

    @property
    def average(self) -> float:
        return self.sum / self.times if self.times else 0.0


class _Window(NamedTuple):
    """The place of a window in the cells of a counter: a sum and a number of times for each bucket.

    Attributes:
        buckets: how many there are, including the current one.
        at: its first cell; the cell before has the number of the latest bucket.
    """

    bucket_s: int
    buckets: int
    at: int

    @property
    def end(self) -> int:
        return self.at + 2 * self.buckets


_MINUTE: Final = _Window(_BUCKET_S, 7, 1)
_HOUR: Final = _Window(600, 7, _MINUTE.end + 1)
_DAY: Final = _Window(3600, 25, _HOUR.end + 1)


class Counter:
    """Counts one thing in buckets of 10 seconds, ten minutes and an hour, as RocketMQ samples.

    A broker has one for each of thousands of names, so all its buckets are one array.

    Attributes:
        sum: of all amounts.
        last_second: when something was last counted.
    """

    __slots__ = ("_amount", "_cells", "_times", "last_second", "sum")

    def __init__(self) -> None:
        self._cells = array("q", bytes(8 * _DAY.end))
        self.sum = 0
        self.last_second = 0
        self._amount = self._times = 0  # of the current 10 seconds, not in the cells yet

    def add(self, second: int, amount: int = 1, times: int = 1) -> None:
        """Count something at a time in whole seconds, which never goes back."""
        if second // _BUCKET_S != self.last_second // _BUCKET_S:
            self._settle()
        self.last_second = second
        self.sum += amount
        self._amount += amount
        self._times += times

    def minute(self, second: int) -> Total:
        return self._total(_MINUTE, second)

    def hour(self, second: int) -> Total:
        return self._total(_HOUR, second)

    def day(self, second: int) -> Total:
        return self._total(_DAY, second)

    def _total(self, window: _Window, second: int) -> Total:
        self._settle()
        self._begin(window, second)
        cells = self._cells[window.at : window.end]
        # Whole buckets, and the beginning of the current one.
        bucket_s = window.bucket_s
        over_s = (window.buckets - 1) * bucket_s + second % bucket_s
        return Total(sum(cells[::2]), sum(cells[1::2]), max(1, over_s))

    def _settle(self) -> None:
        if not self._times:
            return
        for window in (_MINUTE, _HOUR, _DAY):
            cell = self._begin(window, self.last_second)
            self._cells[cell] += self._amount
            self._cells[cell + 1] += self._times
        self._amount = self._times = 0

    def _begin(self, window: _Window, second: int) -> int:
        """Return the cell of a time's bucket, after clearing buckets that begin since the last
        call.
        """
        cells, number = self._cells, second // window.bucket_s
        latest = cells[window.at - 1]
        for passed in range(max(latest + 1, number - window.buckets + 1), number + 1):
            cell = window.at + 2 * (passed % window.buckets)
            cells[cell] = cells[cell + 1] = 0
        number = cells[window.at - 1] = max(latest, number)
        return window.at + 2 * (number % window.buckets)
