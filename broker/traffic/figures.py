"""What code 28 says of a broker's traffic, by RocketMQ's names.

Source: RocketMQ's StoreStatsService and AdminBrokerProcessor.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.limits import BrokerLimits
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.traffic.days import Mornings
from broker.traffic.put_times import PutTimes
from broker.traffic.traffic import Traffic

# RocketMQ has a queue before each pool of threads. Here one loop answers all requests as they come,
# so none waits there, and there is no lock on the page cache to wait for.
_NEVER_WAITING: Final = {
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "ackThreadPoolQueueSize": "0",
    "endTransactionQueueSize": "0",
    "pageCacheLockTimeMills": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueSize": "0",
    "remainHowManyDataToCommit": "0",
    "remainHowManyDataToFlush": "0",
    "sendThreadPoolQueueHeadWaitTimeMills": "0",
    "timerDequeueTps": "0.0",
    "timerEnqueueTps": "0.0",
    "timerOffsetBehind": "0",
    "timerReadBehind": "0",
}


class TrafficFigures:
    """Makes the figures.

    Args:
        traffic: what was counted.
        put_times: how long messages took.
        state: the applied state.
        limits: what is held at most.
        wall_clock_ms: milliseconds since 1970.
        hour_of: the local hour of the day at such a time.
        used_percent: how much of the disk is used.
    """

    def __init__(
        self,
        traffic: Traffic,
        put_times: PutTimes,
        state: BrokerState,
        limits: BrokerLimits,
        wall_clock_ms: Callable[[], int],
        hour_of: Callable[[int], int],
        used_percent: Callable[[], float],
    ) -> None:
        self._traffic = traffic
        self._put_times = put_times
        self._messages = state[MESSAGES]
        self._limits = limits
        self._wall_clock_ms = wall_clock_ms
        self._hour_of = hour_of
        self._used_percent = used_percent
        self._started_ms = wall_clock_ms()
        self._mornings = Mornings(self._now())

    def look(self) -> None:
        """Look at the clock, several times an hour."""
        self._mornings.look(self._hour_of(self._wall_clock_ms()), self._now())

    def _now(self) -> tuple[int, int]:
        """Messages put, over all members, and given out by this one."""
        return self._messages.messages, self._traffic.sums.given

    def figures(self) -> Mapping[str, str]:
        """The figures by name."""
        traffic, limits, put, given = self._traffic, self._limits, *self._now()
        yesterday, today = self._mornings.yesterday, self._mornings.today
        used = f"{self._used_percent() / 100:.4f}"
        transferred = _words(traffic.rates(lambda sums: sums.given))
        return {
            **_NEVER_WAITING,
            "brokerActive": "true",
            "commitLogDiskRatio": used,
            "consumeQueueDiskRatio": used,
            "dledgerUncountedByTopic": str(traffic.left_out),
            "earliestMessageTimeStamp": str(self._messages.time_marks.earliest_ms),
            "endTransactionThreadPoolQueueCapacity": str(limits.max_waiting_sends),
            "getFoundTps": _words(traffic.rates(lambda sums: sums.found)),
            "getMissTps": _words(traffic.rates(lambda sums: sums.missed)),
            "getTotalTps": _words(traffic.rates(lambda sums: sums.found + sums.missed)),
            "getTransferedTps": transferred,  # RocketMQ 4's spelling
            "getTransferredTps": transferred,
            "msgGetTotalTodayMorning": str(today[1]),
            "msgGetTotalTodayNow": str(given),
            "msgGetTotalYesterdayMorning": str(yesterday[1]),
            "msgPutTotalTodayMorning": str(today[0]),
            "msgPutTotalTodayNow": str(put),
            "msgPutTotalYesterdayMorning": str(yesterday[0]),
            "pullThreadPoolQueueCapacity": str(limits.max_held_pulls),
            "putMessageDistributeTime": str(self._put_times),
            "putMessageEntireTimeMax": str(self._put_times.slowest_ms),
            "putMessageTimesTotal": str(traffic.sums.put),
            "putTps": _words(traffic.rates(lambda sums: sums.put)),
            "queryThreadPoolQueueCapacity": "64",
            "runtime": _duration(self._wall_clock_ms() - self._started_ms),
            "sendThreadPoolQueueCapacity": str(limits.max_waiting_sends),
        }


def _words(rates: Sequence[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _duration(milliseconds: int) -> str:
    """As RocketMQ writes it."""
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
