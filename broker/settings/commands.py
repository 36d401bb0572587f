"""The log's command that changes settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from broker.log.entry import ATTACHED_VERSION, natural, text
from broker.log.folded import EntryRefused, Folded
from broker.log.registry import CommandType
from broker.log.state import BrokerState
from broker.settings.state import CHANGED_SETTINGS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """An operator changes settings. The leader has judged them.

    Attributes:
        values: by RocketMQ's names: the text, or None for what each member was started with.
        at_ms: when; the leader's wall clock, milliseconds since 1970.
    """

    kind: ClassVar[int] = 30
    version: ClassVar[int] = ATTACHED_VERSION

    values: Mapping[str, str | None]
    at_ms: int

    def members(self) -> list[object]:
        """As in LogCommand."""
        return [[list(pair) for pair in self.values.items()], self.at_ms]


def _read(pairs: list[Any], at_ms: int) -> ChangeSettings:
    values = {text(name): None if value is None else text(value) for name, value in pairs}
    if not values:
        raise ValueError("no setting")
    return ChangeSettings(values, natural(at_ms))


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
    folded.topics_changed = True  # name servers are told what the broker's permission leaves
    return None


CHANGE_SETTINGS: Final = CommandType(ChangeSettings, {ATTACHED_VERSION: _read}, _change)
