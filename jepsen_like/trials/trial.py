"""The search for one mistake: seed after seed, until one shows it or time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import NamedTuple

from jepsen_like.mutants.mutant import Mutant


class Fate(Enum):
    """The outcome for a mistake. The values are its names in tables."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNCLEAR = "also without it"


class Trial(NamedTuple):
    """The result of the search for one mistake.

    `oracle` is the promise that was broken, or the checker's report; empty if nothing was found.
    """

    mutant: Mutant
    fate: Fate
    oracle: str
    seed: int | None
    runs: int
    took_s: float


class Found(NamedTuple):
    """A finding of a seed: the promise that was broken, or the checker's report."""

    oracle: str
    fate: Fate = Fate.CAUGHT


def search(
    mutant: Mutant, first_seed: int, budget_s: float, look: Callable[[int], Found | None]
) -> Trial:
    """Look at seed after seed until `budget_s` is spent."""
    begin_s = time.monotonic()
    for runs in count(1):
        seed = first_seed + runs - 1
        found = look(seed)
        passed_s = time.monotonic() - begin_s
        if found is not None:
            return Trial(mutant, found.fate, found.oracle, seed, runs, passed_s)
        if passed_s >= budget_s:
            return Trial(mutant, Fate.SURVIVED, "", None, runs, passed_s)
    raise AssertionError("there is no last seed")
