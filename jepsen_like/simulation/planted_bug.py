"""How a bug is planted on purpose: attributes, and what stands in their place for one run."""

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


BUGS: dict[str, SeededBug] = {}


def bug(name: str, what: str) -> Callable[[Callable[[], list[Replacement]]], None]:
    """Enter a bug into the list under its name."""

    def enter(replacements: Callable[[], list[Replacement]]) -> None:
        BUGS[name] = SeededBug(name, what, replacements)

    return enter
