"""When a message is to be delivered.

Source: RocketMQ's HookUtils.checkScheduleMessage: a level counts before a time.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.errors import RequestRefused
from broker.limits import MAX_DELAY_S
from remoting.message.properties import (
    DELAY_TIME_LEVEL,
    START_DELIVER_TIME,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
)
from remoting.wire.field_values import INT32_MAX, read_int64

_MINUTE: Final = 60_000

# RocketMQ's messageDelayLevel: 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h.
LEVEL_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)

MAX_DELAY_MS: Final = MAX_DELAY_S * 1000

# A delayed message has one of these properties.
DELAY_NAMES: Final = (
    DELAY_TIME_LEVEL,
    TIMER_DELAY_S,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    START_DELIVER_TIME,
)

# More than any wall clock shows, and its products fit 64 bits.
_MAX_NUMBER: Final = 1 << 52


class AfterLevel(NamedTuple):
    """Due so long after it was stored. `level` is 1 to 18."""

    level: int

    @property
    def delay_ms(self) -> int:
        return LEVEL_MS[self.level - 1]


class AtTime(NamedTuple):
    """Due at a time, in milliseconds since 1970."""

    due_ms: int


Due: TypeAlias = AfterLevel | AtTime


def read_due(pairs: Mapping[str, str], now_ms: int, max_delay_ms: int = MAX_DELAY_MS) -> Due | None:
    """Return when a message with these properties is due; None for now.

    Args:
        pairs: its properties.
        now_ms: the time, in milliseconds since 1970.
        max_delay_ms: the longest delay; levels are exempt.

    Raises RequestRefused (13): a property is not a number, or the delay is too long.
    """
    level = _number(pairs, DELAY_TIME_LEVEL, INT32_MAX)
    if level > 0:
        return AfterLevel(min(level, len(LEVEL_MS)))
    due_ms = max(_number(pairs, TIMER_DELIVER_MS), _number(pairs, START_DELIVER_TIME))
    delay_ms = max(_number(pairs, TIMER_DELAY_S) * 1000, _number(pairs, TIMER_DELAY_MS))
    if delay_ms > 0:
        due_ms = max(due_ms, now_ms + delay_ms)
    if due_ms - now_ms > max_delay_ms:
        raise RequestRefused.illegal(
            f"timer message illegal, the delay time should not be bigger than the max delay "
            f"{max_delay_ms} ms: it is {due_ms - now_ms} ms"
        )
    return AtTime(due_ms) if due_ms > now_ms else None


def _number(pairs: Mapping[str, str], name: str, most: int = _MAX_NUMBER) -> int:
    text = pairs.get(name)
    if not text:
        return 0
    value = read_int64(text)
    if value is None or not -most - 1 <= value <= most:
        raise RequestRefused.illegal(f"property {name}={text!r:.40}: give a whole number")
    return value
