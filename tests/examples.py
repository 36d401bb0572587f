"""How many examples a property is tried with: EXAMPLES=all tries all, the default suite some."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis's own number for a property that names none.
ALL = 100
# In the default suite; `make test-long` tries them all.
SOME = 40


def examples(wanted: int) -> int:
    """As many as wanted where all are tried, and the same share of them as of ALL elsewhere."""
    share = settings.default
    assert share is not None
    return max(1, wanted * share.max_examples // ALL)
