"""When transactions are checked, and when they are given up."""

from dataclasses import dataclass
from typing import Final

from broker.errors import SettingInvalid
from remoting.wire.field_values import read_natural

_MS_PER_HOUR: Final = 60 * 60 * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPolicy:
    """Defaults are RocketMQ's. Raises SettingInvalid.

    Attributes:
        after_s: the time from storing a message to its first check.
        every_s: the time between two checks.
        max_checks: after so many checks the transaction is given up.
        give_up_hours: after so long it is given up even without a producer to check.
    """

    after_s: float = 6
    every_s: float = 30
    max_checks: int = 15
    give_up_hours: int = 72

    def __post_init__(self) -> None:
        for setting, value in (
            ("--transaction-check-after-seconds", self.after_s),
            ("--transaction-check-every-seconds", self.every_s),
            ("--transaction-max-checks", self.max_checks),
            ("--transaction-give-up-hours", self.give_up_hours),
        ):
            if value < 1:
                raise SettingInvalid(setting, f"{value}: give 1 or more")

    @property
    def give_up_ms(self) -> int:
        return self.give_up_hours * _MS_PER_HOUR

    def immunity_ms(self, asked_s: str) -> int:
        """Return for how long a message is not checked, in milliseconds.

        `asked_s`: its CHECK_IMMUNITY_TIME_IN_SECONDS; as in RocketMQ, ignored if not a
        number.
        """
        wanted_s = read_natural(asked_s) or 0
        return min(wanted_s * 1000 or round(self.after_s * 1000), self.give_up_ms)
