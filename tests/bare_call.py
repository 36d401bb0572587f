"""A call without what lets it take its arguments by their old names."""

from __future__ import annotations

from typing import Any

from dledger.renamed import new_names_of


def bare(called: Any) -> Any:
    """The call as it is written. Until Python 3.12 no other is known to be a coroutine function."""
    return called.__wrapped__ if new_names_of(called) else called
