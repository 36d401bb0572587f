"""A seeded bug: a mistake that can be planted in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Replacement(NamedTuple):
    """One attribute, and the object that replaces it."""

    owner: Any
    name: str
    value: Any


class SeededBug(NamedTuple):
    """A mistake: its name, what it is, and how it is made."""

    name: str
    what: str
    replacements: Callable[[], list[Replacement]]


@contextmanager
def planted(bug: SeededBug) -> Iterator[None]:
    """Plant one bug in this process, for the length of a block."""
    replacements = bug.replacements()
    before = [getattr(owner, attribute) for owner, attribute, _ in replacements]
    for owner, attribute, value in replacements:
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for (owner, attribute, _), value in zip(replacements, before, strict=True):
            setattr(owner, attribute, value)
