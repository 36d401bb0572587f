"""The tiers of the simulation: groups of bare members, groups of brokers, and whole hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, Protocol

from jepsen_like.simulation.coverage import EXPECTED, Coverage
from jepsen_like.simulation.trace import Trace

TIERS = ("members", "brokers", "hosts")


class SeededRun(Protocol):
    @property
    def coverage(self) -> Coverage: ...

    @property
    def virtual_s(self) -> float: ...

    def run(self) -> None: ...


# Makes a run of a seed: members or hosts, seconds with faults (None: the seed's choice), trace.
MakeRun = Callable[[int, int | None, float | None, Trace | None], SeededRun]


class Tier(NamedTuple):
    """One kind of simulation.

    Attributes:
        make: makes a run.
        aimed: by mutant, makes runs that soon come where it shows; `make` serves the other mutants.
        expected: the counts that many seeds together must reach.
    """

    make: MakeRun
    expected: Sequence[str]
    aimed: Mapping[str, MakeRun] = {}


# Brokers take most of a second to load: each tier is loaded when it is first used.


def _members() -> Tier:
    from jepsen_like.simulation.member_aims import MEMBER_AIMS
    from jepsen_like.simulation.simulation import Simulation
    from jepsen_like.simulation.swarm import Swarm, aimed_swarm, folder_swarm, members_swarm_of

    def run_of(swarm: Callable[[int, int | None, float | None], Swarm]) -> MakeRun:
        return lambda seed, nodes, fault_s, trace: Simulation(swarm(seed, nodes, fault_s), trace)

    return Tier(
        run_of(members_swarm_of),
        EXPECTED,
        {
            "restored-folder-is-believed": run_of(folder_swarm),
            **{name: run_of(partial(aimed_swarm, aim=aim)) for name, aim in MEMBER_AIMS.items()},
        },
    )


def _brokers() -> Tier:
    from jepsen_like.simulation.broker.aims import AIMS
    from jepsen_like.simulation.broker.broker_simulation import (
        EXPECTED_OF_BROKERS,
        broker_simulation,
    )

    aimed = {name: partial(broker_simulation, aim=aim) for name, aim in AIMS.items()}
    return Tier(broker_simulation, EXPECTED_OF_BROKERS, aimed)


def _hosts() -> Tier:
    from jepsen_like.simulation.hosts.host_simulation import EXPECTED_OF_HOSTS, HostSimulation
    from jepsen_like.simulation.hosts.plan import plan_of

    return Tier(
        lambda seed, hosts, fault_s, trace: HostSimulation(plan_of(seed, hosts, fault_s), trace),
        EXPECTED_OF_HOSTS,
    )


@cache
def tier_of(name: str) -> Tier:
    """Return the tier of this name, one of TIERS."""
    return {"members": _members, "brokers": _brokers, "hosts": _hosts}[name]()
