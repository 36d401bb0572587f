"""Plans the runs and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.workload import APPEND

# Seconds from starting three processes to the first append, about: elections, and setup of the
# load.
STARTING_S = 4.0


class PlanInvalid(ValueError):
    """The options cannot be planned; the text says which can."""


class Point(NamedTuple):
    body_bytes: int
    in_flight: int


class Contender(NamedTuple):
    """A system, as the plan and the tables know it.

    `key`: its name in options; `name`: in tables. A system that does not sync is marked.
    `round_trips`: from an append to its answer, over loopback: one where the load is in the
    leader's process, two with a client beside it. A system that stands `apart` answers another
    question, and is measured only if `chosen` by name.
    """

    key: str
    name: str
    ours: bool = False
    limit: bool = False
    syncs: bool = True
    round_trips: int = 1
    call: str = APPEND
    batch: int = 1
    least_in_flight: int = 1
    most_in_flight: int = 1_000_000
    apart: bool = False
    warm_up_s: float = 2.0

    def fits(self, point: Point) -> bool:
        return self.least_in_flight <= point.in_flight <= self.most_in_flight


class Run(NamedTuple):
    """One run: three processes are started, loaded and ended."""

    round: int
    point: Point
    contender: Contender


def numbers(text: str, least: int = 1) -> list[int]:
    """Parse `16,256`, numbers of at least `least`. Raises PlanInvalid."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise PlanInvalid(f"{text!r} is not a list of numbers, as in 16,256") from None
    if min(found) < least:
        raise PlanInvalid(f"{text!r}: each number must be at least {least}")
    return found


def chosen(text: str, contenders: Sequence[Contender]) -> list[Contender]:
    """Return ours and those in `text`: `all`, `none`, or keys with commas. Raises PlanInvalid."""
    known = choices(contenders)
    together = choices([each for each in contenders if not each.apart])
    wanted = {"all": together, "none": []}.get(text, text.split(","))
    if unknown := [word for word in wanted if word not in known]:
        raise PlanInvalid(f"{unknown[0]!r} is not one of {', '.join(['all', 'none', *known])}")
    return [each for each in contenders if each.ours or _word(each) in wanted]


def choices(contenders: Sequence[Contender]) -> list[str]:
    """Return the keys that `chosen` knows. All contenders of the limit share one key."""
    return list(dict.fromkeys(_word(each) for each in contenders if not each.ours))


def _word(contender: Contender) -> str:
    return "limit" if contender.limit else contender.key


def plan(rounds: int, points: Sequence[Point], contenders: Sequence[Contender]) -> list[Run]:
    """Return all runs, ours among the others, each round in another order.

    So a slow period of the machine slows all systems, and none always follows the same one.
    """
    return [
        Run(number, point, each)
        for number in range(rounds)
        for point in points
        for each in _in_turn([each for each in contenders if each.fits(point)], number)
    ]


def _in_turn(contenders: list[Contender], turn: int) -> list[Contender]:
    ours = _rotated([each for each in contenders if each.ours], turn)
    others = _rotated([each for each in contenders if not each.ours], turn)
    places = [*_spread(ours), *_spread(others)]
    return [each for _, each in sorted(places, key=lambda place: place[0])]


def _rotated(contenders: list[Contender], turn: int) -> list[Contender]:
    turn %= len(contenders) or 1
    return contenders[turn:] + contenders[:turn]


def _spread(contenders: list[Contender]) -> Iterable[tuple[float, Contender]]:
    for place, each in enumerate(contenders):
        yield (place + 0.5) / len(contenders), each


def planned_s(runs: Sequence[Run], measured_s: float) -> float:
    return sum(STARTING_S + run.contender.warm_up_s + measured_s for run in runs)
