"""The exports of `jepsen_like`: all that a test needs of a simulated group."""

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
