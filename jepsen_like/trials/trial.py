"""The search for one mistake: seed after seed, until one shows it or time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import NamedTuple

from jepsen_like.mutants.mutant import Mutant


class Fate(Enum):
    """What became of a mistake. The values are how tables call it."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNCLEAR = "also without it"


class Trial(NamedTuple):
    """What the search for one mistake found.

    Attributes:
        mutant: the mistake.
        fate: what became of it.
        oracle: the promise that was broken, or what the checker said; empty if nothing was.
        seed: of the run that showed it; None if none did.
        runs: how many were made.
        took_s: how long it took.
    """

    mutant: Mutant
    fate: Fate
    oracle: str
    seed: int | None
    runs: int
    took_s: float


class Found(NamedTuple):
    """What a seed showed: the promise that was broken, or what the checker said."""

    oracle: str
    fate: Fate = Fate.CAUGHT


def search(
    mutant: Mutant, first_seed: int, budget_s: float, look: Callable[[int], Found | None]
) -> Trial:
    """Look at seed after seed.

    Args:
        mutant: the mistake.
        first_seed: where to begin.
        budget_s: no further seed begins after so many seconds.
        look: makes the run of a seed.
    """
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
