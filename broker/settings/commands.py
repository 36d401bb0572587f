"""The log's command that changes settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.log.command_layout import Natural, Told
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.settings.state import CHANGED_SETTINGS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """An operator changes settings. The leader has judged them.

    `values`: by RocketMQ's names: the text, or None for the setting that each member was started
    with.
    """

    kind: ClassVar[int] = 30
    since: ClassVar[int] = ATTACHED_VERSION

    values: Annotated[Mapping[str, str | None], Told(("name", "value"))]
    at_ms: Natural

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("no setting")


def _change(
    state: BrokerState, folded: Folded, command: ChangeSettings, _entry: Entry
) -> EntryRefused | None:
    settings = state[CHANGED_SETTINGS]
    for name, value in command.values.items():
        if value is None:
            settings.values.pop(name, None)
        else:
            settings.values[name] = value
    settings.setting_changes += 1
    settings.settings_changed_ms = max(settings.settings_changed_ms, command.at_ms)
    folded.topics_changed = True  # the broker's permission limits those in routes
    return None


CHANGE_SETTINGS: Final = CommandType(ChangeSettings, _change)
