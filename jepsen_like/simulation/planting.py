"""Plants bugs on purpose, in this process only, and only while a run lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


_BUGS: dict[str, SeededBug] = {}


def bug(name: str, what: str) -> Callable[[Callable[[], list[Replacement]]], None]:
    """Enter the decorated function, which makes the replacements, into the list."""

    def enter(replacements: Callable[[], list[Replacement]]) -> None:
        _BUGS[name] = SeededBug(name, what, replacements)

    return enter


def seeded_bugs() -> dict[str, SeededBug]:
    """All bugs, by name."""
    return dict(_BUGS)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one bug in this process. Raises KeyError for a name that is none."""
    replacements = _BUGS[name].replacements()
    before = [getattr(owner, attribute) for owner, attribute, _ in replacements]
    for owner, attribute, value in replacements:
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for (owner, attribute, _), value in zip(replacements, before, strict=True):
            setattr(owner, attribute, value)
