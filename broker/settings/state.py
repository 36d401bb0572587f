"""The settings that operators have changed, as the log says."""

from dataclasses import dataclass, field
from typing import Final

from broker.log.state import StatePart, mapping_rows


@dataclass(slots=True)
class ChangedSettings:
    """What operators have set. It counts more than what a member was started with.

    Attributes:
        values: by RocketMQ's names, as text.
        setting_changes: how often settings were changed.
        settings_changed_ms: when they were changed last; milliseconds since 1970.
    """

    values: dict[str, str] = field(default_factory=dict)
    setting_changes: int = 0
    settings_changed_ms: int = 0


CHANGED_SETTINGS: Final = StatePart(
    "settings",
    ChangedSettings,
    numbers=("setting_changes", "settings_changed_ms"),
    rows=(mapping_rows("settings", lambda settings: settings.values, str),),
)
