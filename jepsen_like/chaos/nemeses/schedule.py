"""The begin of each fault, as a function of the seed alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jepsen_like.chance import Chance
from jepsen_like.chaos.nemeses.catalogue import NEMESES, Kind, Lane, Nemesis

# The first fault begins when clients have calls under way.
WARM_UP_S = 2.0
# Between two faults: time for an election, so that a fault meets a group that works, and less than
# that now and then, so that it does not.
SHORTEST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 4.0
# In shorter runs, times are scaled down by this length.
SHORT_RUN_S = 20.0


class Fault(NamedTuple):
    """One fault of a schedule.

    Faults of one `lane` follow one another; those of two may overlap. `chance` is the name of the
    stream from which it draws its targets and strengths, so that one fault less leaves the others
    unchanged.
    """

    number: int
    nemesis: str
    kind: str
    begin_s: float
    lasts_s: float
    lane: int
    chance: str


def schedule(
    seed: int,
    nemeses: Sequence[str],
    time_s: float,
    catalogue: Mapping[str, Nemesis] = NEMESES,
) -> list[Fault]:
    """Return the faults of a run, in the order in which they begin.

    Faults of one lane follow one another. If nemeses of both lanes are named, half of the seeds run
    the lanes side by side, so that, for example, a member is killed during a partition; the others
    run all faults one after another. Every kind comes once before one comes again.
    """
    lanes = _lanes(seed, nemeses, catalogue)
    found: list[Fault] = []
    for place, names in enumerate(lanes):
        kinds = [(name, kind) for name in names for kind in catalogue[name].kinds]
        found += _faults_of(Chance(seed, f"lane {place}"), place, kinds, time_s)
    found.sort(key=lambda fault: fault.begin_s)
    return [
        fault._replace(number=number, chance=f"fault {number}")
        for number, fault in enumerate(found)
    ]


def _lanes(seed: int, nemeses: Sequence[str], catalogue: Mapping[str, Nemesis]) -> list[list[str]]:
    names = sorted(set(nemeses))
    by_lane = [[name for name in names if catalogue[name].lane is lane] for lane in Lane]
    used = [lane for lane in by_lane if lane]
    if len(used) > 1 and Chance(seed, "lanes").happens(0.5):
        return used
    return [names]


def _faults_of(
    chance: Chance, lane: int, kinds: Sequence[tuple[str, Kind]], time_s: float
) -> list[Fault]:
    found: list[Fault] = []
    bag: list[tuple[str, Kind]] = []
    scale = min(1.0, time_s / SHORT_RUN_S)
    now_s = min(WARM_UP_S, time_s / 4) + chance.uniform(0.0, 0.5)
    while kinds:
        if not bag:
            bag = list(kinds)
            chance.shuffle(bag)
        name, kind = bag.pop()
        lasts_s = chance.uniform(kind.shortest_s, kind.longest_s) * scale
        pause_s = chance.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S) * scale + kind.settle_s * scale
        if now_s + lasts_s > time_s:
            return found
        found.append(Fault(0, name, kind.name, round(now_s, 3), round(lasts_s, 3), lane, ""))
        now_s += lasts_s + pause_s
    return found
