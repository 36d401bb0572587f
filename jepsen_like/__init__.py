"""Breaks the log and the broker on purpose: simulation in virtual time, chaos on real processes.

    with jepsen_like.simulate(MyMachine, nodes=5, seed=7) as world:
        world.append(b"...")
        world.kill("leader")
        world.run_for(2.0)

See docs/test-your-state-machine.md; `jepsen-like --help` for the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jepsen_like.chaos.service import Call
    from jepsen_like.simulation.failure import Failure
    from jepsen_like.simulation.service.adaptive_clients import Answer
    from jepsen_like.simulation.service.clients import MemberDown
    from jepsen_like.simulation.service.request import Request, Told, Unanswered
    from jepsen_like.simulation.service.schedule import Do, Schedule, Step
    from jepsen_like.simulation.service.service import Service
    from jepsen_like.simulation.service.service_run import run_schedule
    from jepsen_like.simulation.service.simulated_member import SimulatedMember
    from jepsen_like.simulation.service.world import World, simulate

__all__ = [
    "Answer",
    "Call",
    "Do",
    "Failure",
    "MemberDown",
    "Request",
    "Schedule",
    "Service",
    "SimulatedMember",
    "Step",
    "Told",
    "Unanswered",
    "World",
    "run_schedule",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Load the simulation when it is first used: checkers of histories do without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jepsen_like import simulating  # noqa: PLC0415 # see above

    return getattr(simulating, name)
