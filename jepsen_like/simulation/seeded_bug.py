"""What a seeded bug is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Replacement(NamedTuple):
    """One attribute, and what stands in its place."""

    owner: Any
    name: str
    value: Any


class SeededBug(NamedTuple):
    """A mistake: its name, what it is, and how it is made."""

    name: str
    what: str
    replacements: Callable[[], list[Replacement]]
