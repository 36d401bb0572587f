"""The figures of a broker's traffic for code 28, by RocketMQ's names.

Source: RocketMQ's StoreStatsService and AdminBrokerProcessor.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from broker.messages.quarter_counts import QUARTER_MS, QuarterCounts
from broker.messages.state import MESSAGES
from broker.serving.parts import Parts
from broker.traffic.put_times import PUT_TIMES
from broker.traffic.traffic import TRAFFIC

# RocketMQ has a queue for each pool of threads. Here one loop answers all requests as they arrive,
# so none waits in a queue, or for a lock on the page cache.
_NEVER_WAITING: Final = {
    "EndTransactionQueueSize": "0",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "litePullThreadPoolQueueHeadWaitTimeMills": "0",
    "litePullThreadPoolQueueSize": "0",  # both kinds of pulls wait together
    "pageCacheLockTimeMills": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueHeadWaitTimeMills": "0",
    "sendThreadPoolQueueHeadWaitTimeMills": "0",
}

# Java's index thread has a buffer, and its store a pool of buffers, which it reports as unlimited
# when it is off. Here there are no such buffers.
_WITHOUT_BUFFERS: Final = {
    "dispatchMaxBuffer": "0",
    "remainHowManyDataToCommit": "0 B",
    "remainHowManyDataToFlush": "0 B",  # acknowledged messages are synced
    "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
}


class TrafficFigures:
    """Computes the figures.

    Args:
        hour_of: returns the local hour of the day at a time of the wall clock.
        used_percent: returns how full the disk is.
        capacity_bytes: returns the size of the disk, and how much is free; may raise OSError.
    """

    def __init__(
        self,
        parts: Parts,
        hour_of: Callable[[int], int],
        used_percent: Callable[[], float],
        capacity_bytes: Callable[[], tuple[int, int]],
    ) -> None:
        self._traffic = parts[TRAFFIC]
        self._put_times = parts[PUT_TIMES]
        self._messages = parts.state[MESSAGES]
        self._limits = parts.config.limits
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._hour_of = hour_of
        self._used_percent = used_percent
        self._capacity_bytes = capacity_bytes
        self._directory = parts.config.directory
        self._started_ms = self._wall_clock_ms()
        self._serves_since_ms = 0
        # Messages that this member gave. The state counts stored ones, for all members.
        self._given = QuarterCounts()
        self._given.add(self._started_ms, 0)

    def begin_term(self) -> None:
        self._serves_since_ms = self._wall_clock_ms()

    def look(self) -> None:
        """Check the clock, several times an hour."""
        now_ms = self._wall_clock_ms()
        if now_ms >= self._given.next_ms:
            self._given.add(now_ms, self._traffic.sums.given)
        self._put_times.look(self._clock())

    def figures(self) -> Mapping[str, str]:
        sums, times = self._traffic.sums, self._put_times
        return {
            **_NEVER_WAITING,
            **_WITHOUT_BUFFERS,
            **self._days(),
            **self._rates(),
            **self._disk(),
            **self._capacities(),
            "brokerActive": "true",
            "dledgerCountersForgotten": str(self._traffic.forgotten),
            "earliestMessageTimeStamp": str(self._messages.time_marks.earliest_ms),
            "getMessageEntireTimeMax": str(self._traffic.slowest_read_ms),
            "putLatency99": f"{times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{times.percentile_ms(0.999):.2f}",
            "putMessageAverageSize": f"{sums.put_bytes / sums.put if sums.put else 0:.2f}",
            "putMessageDistributeTime": str(times),
            "putMessageEntireTimeMax": str(times.slowest_ms),
            "putMessageFailedTimes": str(times.failed),
            "putMessageSizeTotal": str(sums.put_bytes),
            "putMessageTimesTotal": str(sums.put),
            "runtime": _duration(self._wall_clock_ms() - self._started_ms),
            "startAcceptSendRequestTimeStamp": str(self._serves_since_ms),
        }

    def _days(self) -> Mapping[str, str]:
        """Return the numbers of messages when the days began, in local time of this member."""
        began = mornings(self._wall_clock_ms(), self._hour_of)
        put, given = self._messages.messages, self._traffic.sums.given
        puts = self._messages.quarter_counts
        return {
            "msgGetTotalTodayMorning": str(self._given.before(began.today_ms, given)),
            "msgGetTotalTodayNow": str(given),
            "msgGetTotalYesterdayMorning": str(self._given.before(began.yesterday_ms, given)),
            "msgPutTotalTodayMorning": str(puts.before(began.today_ms, put)),
            "msgPutTotalTodayNow": str(put),
            "msgPutTotalYesterdayMorning": str(puts.before(began.yesterday_ms, put)),
        }

    def _rates(self) -> Mapping[str, str]:
        rates = self._traffic.rates
        transferred = _words(rates(lambda sums: sums.given))
        return {
            "getFoundTps": _words(rates(lambda sums: sums.found)),
            "getMissTps": _words(rates(lambda sums: sums.missed)),
            "getTotalTps": _words(rates(lambda sums: sums.found + sums.missed)),
            "getTransferedTps": transferred,  # RocketMQ 4's spelling
            "getTransferredTps": transferred,
            "putTps": _words(rates(lambda sums: sums.put)),
        }

    def _disk(self) -> Mapping[str, str]:
        used = f"{self._used_percent() / 100:.4f}"
        figures = {
            "commitLogDiskRatio": used,
            f"commitLogDiskRatio_{self._directory}": used,
            "consumeQueueDiskRatio": used,
        }
        with suppress(OSError):  # RocketMQ omits it then
            total, free = map(readable_bytes, self._capacity_bytes())
            figures["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
        return figures

    def _capacities(self) -> Mapping[str, str]:
        limits = self._limits
        return {
            "EndTransactionThreadPoolQueueCapacity": str(limits.max_waiting_sends),
            "litePullThreadPoolQueueCapacity": str(limits.max_held_pulls),
            "pullThreadPoolQueueCapacity": str(limits.max_held_pulls),
            "sendThreadPoolQueueCapacity": str(limits.max_waiting_sends),
        }


def _words(rates: Sequence[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _duration(lasted_ms: int) -> str:
    minutes, seconds = divmod(max(0, lasted_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def readable_bytes(count: int) -> str:
    """Format a number of bytes as Java does: 39.2 GiB."""
    if count < 1024:
        return f"{count} B"
    power = (count.bit_length() - 1) // 10
    return f"{count / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"


_DAY_MS: Final = 24 * 3600 * 1000

_HALF_A_DAY_HOURS: Final = 12

# A day has 25 hours when the clocks are set back.
_QUARTERS_OF_A_DAY: Final = 25 * 4


class Mornings(NamedTuple):
    """When yesterday and today began, in milliseconds since 1970."""

    yesterday_ms: int
    today_ms: int


def mornings(now_ms: int, hour_of: Callable[[int], int]) -> Mornings:
    """Return when yesterday and today began.

    A day begins where the hour of the day falls by more than half a day, which is at a quarter of
    an hour in every time zone. It falls by one where clocks are set back within an hour, as from
    3:45 to 2:45. Where they are set forward at midnight, a day begins with one o'clock.

    Args:
        now_ms: milliseconds since 1970.
        hour_of: returns the local hour of the day at such a time.
    """
    today_ms = _began(now_ms, hour_of)
    return Mornings(_began(today_ms - 1, hour_of), today_ms)


def _began(at_ms: int, hour_of: Callable[[int], int]) -> int:
    begin_ms = at_ms - at_ms % QUARTER_MS
    for _ in range(_QUARTERS_OF_A_DAY + 1):
        if hour_of(begin_ms - 1) - hour_of(begin_ms) > _HALF_A_DAY_HOURS:
            return begin_ms
        begin_ms -= QUARTER_MS
    return at_ms - at_ms % _DAY_MS  # no time zone has such a clock
