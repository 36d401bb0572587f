"""When messages are dropped: RocketMQ's rules about age, hour of the day and the disk."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.errors import SettingInvalid
from remoting.wire.field_values import read_natural

_MS_PER_HOUR: Final = 60 * 60 * 1000
_HOURS_PER_DAY: Final = 24

# RocketMQ's bounds of the first disk rule.
_LEAST_PERCENT: Final = 10
_MOST_PERCENT: Final = 95


class Drop(Enum):
    """What may be dropped now."""

    NOTHING = "nothing"
    EXPIRED = "expired"  # segments with only expired messages
    OLDEST = "oldest"  # the first segment, however old


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPolicy:
    """How long messages are kept; defaults are RocketMQ's. Raises SettingInvalid.

    Messages are dropped whether consumed or not, by whole segments; the last one stays.

    Attributes:
        keep_hours: a message is kept for so many hours at least, unless the disk is too full.
        at_hours: the hours of the day (0 to 23, local time) in which expired messages are dropped.
        drops_oldest: whether unexpired messages may be dropped.
        clean_percent: when more of the disk is used, expired messages are dropped at any hour.
        force_percent: when more is used, the oldest segment is dropped whatever its age.
        refuse_percent: when more is used, messages are refused.
    """

    keep_hours: int = 72
    at_hours: frozenset[int] = frozenset({4})
    drops_oldest: bool = True
    clean_percent: int = 75
    force_percent: int = 85
    refuse_percent: int = 90

    def __post_init__(self) -> None:
        if self.keep_hours < 1:
            raise SettingInvalid("--keep-hours", f"{self.keep_hours}: give 1 or more")
        if not all(0 <= hour < _HOURS_PER_DAY for hour in self.at_hours):
            raise SettingInvalid("--delete-at-hours", "give hours of the day from 0 to 23, as 4;16")
        if not _LEAST_PERCENT <= self.clean_percent <= _MOST_PERCENT:
            raise SettingInvalid(
                "--disk-clean-percent",
                f"{self.clean_percent}: give {_LEAST_PERCENT} to {_MOST_PERCENT}",
            )
        if not self.clean_percent <= self.force_percent <= self.refuse_percent <= 100:
            raise SettingInvalid(
                "--disk-force-percent",
                f"{self.clean_percent}, {self.force_percent}, {self.refuse_percent}: the percents "
                "of cleaning, forcing and refusing must not fall, nor exceed 100",
            )

    def due(self, used_percent: float, hour: int) -> Drop:
        if used_percent > self.force_percent and self.drops_oldest:
            return Drop.OLDEST
        if used_percent > self.clean_percent or hour in self.at_hours:
            return Drop.EXPIRED
        return Drop.NOTHING

    def refuses(self, used_percent: float) -> bool:
        return used_percent > self.refuse_percent

    def expired_at_ms(self, now_ms: int) -> int:
        """Return the time up to which messages are expired, in milliseconds since 1970."""
        return now_ms - self.keep_hours * _MS_PER_HOUR


def read_hours(text: str) -> frozenset[int]:
    """Read "4" or "4;16", as RocketMQ writes hours of the day. Raises SettingInvalid."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    hours = [hour for hour in map(read_natural, parts) if hour is not None]
    if len(hours) < len(parts):
        raise SettingInvalid("--delete-at-hours", f"{text!r:.40}: give hours, as 4 or 4;16")
    return frozenset(hours)


def utc_hour(time_ms: int) -> int:
    """Return the hour of the day in UTC at a time in milliseconds since 1970."""
    return time_ms // _MS_PER_HOUR % _HOURS_PER_DAY
