"""Checks the numbers in settings when they are made, instead of where they are used."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from dledger.errors import ConfigInvalid

# Numbers of entries and bytes are 64-bit in the file format.
HIGHEST = 2**63 - 1


def check_numbers(settings: Any, prefix: str = "") -> None:
    """Raise ConfigInvalid for a field of a dataclass that is declared as a number, and holds none.

    A comparison with a limit does not find it: True is 1, and nan is neither below a limit nor
    above it. `prefix` stands before the name of the field in the error.
    """
    for field in fields(settings):
        kind = str(field.type).removesuffix(" | None")
        value = getattr(settings, field.name)
        if kind in ("int", "float") and not (value is None and kind != field.type):
            check_number(prefix + field.name, value, whole=kind == "int")


def check_number(setting: str, value: object, *, whole: bool = False) -> None:
    """Raise ConfigInvalid unless `value` is a finite number; `whole`: a whole one."""
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        problem = f"{value!r:.100} is no {'whole number' if whole else 'number'}"
        raise ConfigInvalid(setting, problem)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigInvalid(setting, f"{value} is no finite number")
    if not -HIGHEST <= value <= HIGHEST:
        raise ConfigInvalid(setting, "is beyond the numbers of 64 bits")
