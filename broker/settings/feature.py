"""Settings that operators change."""

from typing import Final

from broker.feature import Feature
from broker.settings.commands import CHANGE_SETTINGS
from broker.settings.state import CHANGED_SETTINGS

FEATURE: Final = Feature(commands=(CHANGE_SETTINGS,), parts=(CHANGED_SETTINGS,))
