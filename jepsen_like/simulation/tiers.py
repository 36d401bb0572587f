"""The tiers of the simulation: groups of bare members, groups of brokers, and whole hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from jepsen_like.simulation.broker.aims import AIMS
from jepsen_like.simulation.broker.broker_simulation import EXPECTED_OF_BROKERS, broker_simulation
from jepsen_like.simulation.coverage import EXPECTED, Coverage
from jepsen_like.simulation.hosts.host_simulation import EXPECTED_OF_HOSTS, HostSimulation
from jepsen_like.simulation.hosts.plan import plan_of
from jepsen_like.simulation.member_aims import MEMBER_AIMS, Aim
from jepsen_like.simulation.simulation import Simulation
from jepsen_like.simulation.swarm import aimed_swarm, folder_swarm, members_swarm_of
from jepsen_like.simulation.trace import Trace


class SeededRun(Protocol):
    """One run of one seed."""

    @property
    def coverage(self) -> Coverage:
        """The counts of the run."""
        ...

    @property
    def virtual_s(self) -> float:
        """The virtual seconds of the run."""
        ...

    def run(self) -> None:
        """Run to the end. Raises Failure."""
        ...


# Makes a run of a seed; members or hosts, and seconds with faults, are as the seed decides if None.
MakeRun = Callable[[int, int | None, float | None, Trace | None], SeededRun]


class Tier(NamedTuple):
    """One kind of simulation.

    Attributes:
        make: makes a run.
        aimed: by mutant: makes runs that come where it shows; without one, `make` does.
        expected: the counts that many seeds together must reach.
    """

    make: MakeRun
    expected: Sequence[str]
    aimed: Mapping[str, MakeRun] = {}


def _members(
    seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None
) -> Simulation:
    return Simulation(members_swarm_of(seed, nodes, fault_s), trace)


def _aimed_members(
    seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None, aim: Aim
) -> Simulation:
    return Simulation(aimed_swarm(seed, nodes, fault_s, aim), trace)


def _restored_folders(
    seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None
) -> Simulation:
    return Simulation(folder_swarm(seed, nodes, fault_s), trace)


def _hosts(
    seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None
) -> HostSimulation:
    return HostSimulation(plan_of(seed, nodes, fault_s), trace)


TIERS = {
    "members": Tier(
        _members,
        EXPECTED,
        {
            "restored-folder-is-believed": _restored_folders,
            **{name: partial(_aimed_members, aim=aim) for name, aim in MEMBER_AIMS.items()},
        },
    ),
    "brokers": Tier(
        broker_simulation,
        EXPECTED_OF_BROKERS,
        {name: partial(broker_simulation, aim=aim) for name, aim in AIMS.items()},
    ),
    "hosts": Tier(_hosts, EXPECTED_OF_HOSTS),
}
