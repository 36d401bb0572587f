"""What one member has stored and given out.

Names and keys are those of RocketMQ's statistics (315).
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from broker.log.folded import Folded
from broker.serving.parts import Shared
from broker.traffic.counter import Counter

# Topics and pairs of topic and group that are counted. One takes 1.5 KB.
MAX_COUNTERS: Final = 20_000

# A counter that counts nothing for so long is all zero, and is let go.
IDLE_SECONDS: Final = 26 * 3600

# Rates are told over the last 10, 60 and 600 seconds.
RATE_SECONDS: Final = (10, 60, 600)


class Counted(Enum):
    """What is counted, and by which key."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic@group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # the cluster
    BROKER_GET_NUMS = "BROKER_GET_NUMS"


class Sums(NamedTuple):
    """Everything since this member was started.

    Attributes:
        put: messages stored.
        found: pulls that got something.
        missed: pulls that got nothing.
        given: messages given to consumers.
    """

    put: int = 0
    found: int = 0
    missed: int = 0
    given: int = 0


class Traffic:
    """Counts on one member, while it leads.

    Args:
        clock: seconds on the monotonic clock.
        cluster: its cluster, the key of what is counted for a whole broker.

    Attributes:
        sums: everything since the start.
        left_out: how often there was no room to count by topic or group.
    """

    def __init__(self, clock: Callable[[], float], cluster: str) -> None:
        self._clock = clock
        self._cluster = cluster
        self._counters: dict[tuple[Counted, str], Counter] = {}
        self._samples: deque[tuple[float, Sums]] = deque(maxlen=RATE_SECONDS[-1] + 1)
        self.sums = Sums()
        self.left_out = 0

    def stored(self, folded: Folded) -> None:
        """Messages were applied."""
        if not folded.arrivals:
            return
        put = 0
        for (topic, _queue_id), arrived in folded.arrivals.items():
            count = len(arrived.units)
            size = sum([int.from_bytes(unit[8:12], "big") for unit in arrived.units])
            put += count
            self._add(Counted.TOPIC_PUT_NUMS, topic, count)
            self._add(Counted.TOPIC_PUT_SIZE, topic, size, count)
        self._add(Counted.BROKER_PUT_NUMS, self._cluster, put)
        self.sums = self.sums._replace(put=self.sums.put + put)

    def given(self, group: str, topic: str, messages: int, size: int) -> None:
        """A pull is answered."""
        sums = self.sums
        if not messages:
            self.sums = sums._replace(missed=sums.missed + 1)
            return
        self.sums = sums._replace(found=sums.found + 1, given=sums.given + messages)
        key = f"{topic}@{group}"
        self._add(Counted.GROUP_GET_NUMS, key, messages)
        self._add(Counted.GROUP_GET_SIZE, key, size, messages)
        self._add(Counted.BROKER_GET_NUMS, self._cluster, messages)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer could not consume a message."""
        self._add(Counted.SNDBCK_PUT_NUMS, f"{topic}@{group}", 1)

    def counter(self, counted: Counted, key: str) -> Counter | None:
        """A counter, or None when nothing was counted with this key."""
        return self._counters.get((counted, key))

    def given_per_second(self, group: str, topic: str) -> float:
        """How many messages a group gets, over the last minute."""
        counter = self.counter(Counted.GROUP_GET_NUMS, f"{topic}@{group}")
        return counter.minute(self.second).per_second if counter is not None else 0.0

    @property
    def second(self) -> int:
        """Now, for counters."""
        return int(self._clock())

    def sample(self) -> None:
        """Remember the sums of each second, for `rates`. Called more often than that."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= 1:
            self._samples.append((now, self.sums))

    def rates(self, of: Callable[[Sums], int]) -> tuple[float, ...]:
        """How much a second: over the last 10, 60 and 600 seconds, or since there are samples."""
        now, present = self._clock(), of(self.sums)
        rates = []
        for seconds in RATE_SECONDS:
            began, sums = next(
                (sample for sample in self._samples if sample[0] >= now - seconds),
                (now, self.sums),
            )
            rates.append((present - of(sums)) / (now - began) if now > began else 0.0)
        return tuple(rates)

    def let_go(self) -> None:
        """Forget what counts nothing any more."""
        oldest = self.second - IDLE_SECONDS
        for key in [key for key, one in self._counters.items() if one.last_second < oldest]:
            del self._counters[key]

    def _add(self, counted: Counted, key: str, amount: int, times: int = 1) -> None:
        counter = self._counters.get((counted, key))
        if counter is None:
            if len(self._counters) >= MAX_COUNTERS:
                self.left_out += 1
                return
            counter = self._counters[counted, key] = Counter()
        counter.add(self.second, amount, times)


TRAFFIC: Final = Shared("traffic", lambda parts: Traffic(parts.clock, parts.config.cluster))
