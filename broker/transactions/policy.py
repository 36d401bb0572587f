"""When producers are asked how their transactions end, and when that is given up. Pure."""

from dataclasses import dataclass
from typing import Final

from broker.errors import SettingInvalid
from remoting.wire.field_values import read_natural

_MS_PER_HOUR: Final = 60 * 60 * 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPolicy:
    """Defaults are RocketMQ's. Raises SettingInvalid.

    Attributes:
        after_s: a producer that has not ended its transaction so long after the message was
            stored is asked.
        every_s: and again, as long as it does not know.
        max_checks: after so many questions the transaction is given up.
        give_up_hours: and after so long, if no producer of the group is there to be asked.
    """

    after_s: float = 6
    every_s: float = 30
    max_checks: int = 15
    give_up_hours: int = 72

    def __post_init__(self) -> None:
        """Judge the settings."""
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
        """`give_up_hours` in milliseconds."""
        return self.give_up_hours * _MS_PER_HOUR

    def immunity_ms(self, asked_s: str) -> int:
        """For how long the producer of a message is not asked, in milliseconds.

        Args:
            asked_s: what the message wants, CHECK_IMMUNITY_TIME_IN_SECONDS; RocketMQ passes
                over what is no number.
        """
        wanted_s = read_natural(asked_s) or 0
        return min(wanted_s * 1000 or round(self.after_s * 1000), self.give_up_ms)
