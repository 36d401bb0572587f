"""A known mistake, and what was found of it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from jepsen_like.chaos.brokers.known_bugs import CHAOS_BUGS
from jepsen_like.chaos.members.seeded_bugs import BUGS
from jepsen_like.simulation.tiers import TIERS

SERVICES = "services"
# Where mistakes are: the tiers of the simulation, and services that rest on the library.
AREAS = (*TIERS, SERVICES)


class Mutant(NamedTuple):
    """A mistake.

    Attributes:
        name: of the mistake.
        what: what the program with it does.
        area: one of AREAS.
    """

    name: str
    what: str
    area: str


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
        seconds: how long it took.
    """

    mutant: Mutant
    fate: Fate
    oracle: str
    seed: int | None
    runs: int
    seconds: float


def all_mutants() -> list[Mutant]:
    """All known mistakes, by area."""
    found = [
        Mutant(bug.name, bug.what, area)
        for area, tier in TIERS.items()
        for bug in tier.bugs.values()
    ]
    services = {name: bug.what for name, bug in BUGS.items()}
    services |= {name: bug.what for name, bug in CHAOS_BUGS.items()}
    return found + [Mutant(name, what, SERVICES) for name, what in services.items()]
