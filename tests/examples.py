"""How much of what could be tried the default suite tries; `make test-long` tries all."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Hypothesis's own number for a property that names none.
ALL = 100
# In the default suite; EXAMPLES=all tries them all.
SOME = 16


def examples(wanted: int) -> int:
    """As many as wanted where all are tried, and the same share of them as of ALL elsewhere."""
    share = settings.default
    assert share is not None
    return max(1, wanted * share.max_examples // ALL)


def seeds(all_seeds: int, every_time: int) -> list[object]:
    """The seeds of a parametrized test, those of every run first; the rest are long."""
    return [
        pytest.param(seed, marks=() if seed < every_time else pytest.mark.long)
        for seed in range(all_seeds)
    ]
