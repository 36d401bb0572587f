"""The limit of the machine, measured beside the systems."""

from __future__ import annotations

from collections.abc import Callable

from bench.place import Place
from bench.plan import Contender
from bench.system import Command, Prepared, System, python_module
from bench.toolchain import Toolchain
from bench.workload import Workload


def _limit(round_trips: int) -> Callable[[Toolchain], Prepared]:
    def commands(place: Place, workload: Workload) -> list[Command]:
        module = python_module("disk_limit")
        return [[*module, str(place.folder), workload.to_json(), str(round_trips)]]

    return lambda _: Prepared("", commands)


# With more in flight the round trips hide behind the syncs: the disk alone is the limit.
LIMITS = (
    System(
        Contender("limit", "limit: the disk", limit=True, round_trips=0, least_in_flight=2),
        _limit(0),
    ),
    *(
        System(
            Contender(
                *(f"limit-{trips}", f"limit: one sync, {trips} round trip{'s' * (trips > 1)}"),
                limit=True,
                round_trips=trips,
                most_in_flight=1,
            ),
            _limit(trips),
        )
        for trips in (1, 2)
    ),
)
