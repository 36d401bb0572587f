"""The header of a history: its first line."""

from __future__ import annotations

from dataclasses import dataclass, field

from jepsen_like.history.value import Map, Value

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Header:
    """The first line of a history; all fields are optional except the format's version.

    `model` names the checker; `seed` is that of the run. `settings` are all fields, with those of
    checkers among them, such as `initial` and `total`: docs/checkers.md names them.
    """

    workload: str | None = None
    model: str | None = None
    seed: int | None = None
    settings: Map = field(default_factory=Map)

    def setting(self, name: str, default: Value = None) -> Value:
        return self.settings.get(name, default)
