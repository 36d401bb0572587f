"""The settings that operators have changed."""

from dataclasses import dataclass, field
from typing import Final

from broker.log.state import StatePart, mapping_rows


@dataclass(slots=True)
class ChangedSettings:
    """Changes of settings. They override those of the start.

    Attributes:
        values: by RocketMQ's names, as text.
        settings_changed_ms: when they last changed; milliseconds since 1970.
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
