"""Planted mistakes as parameters: the default suite looks for a few, `make test-long` for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def planted(names: Iterable[str], in_every_run: Collection[str]) -> list[Any]:
    """All mistakes, in order; those that are not in every run are `long`."""
    names = sorted(names)
    assert set(in_every_run) <= set(names), "a mistake of every run is gone"
    return [
        pytest.param(name, marks=() if name in in_every_run else pytest.mark.long) for name in names
    ]
