"""One run of a group whose members run the broker."""

from __future__ import annotations

from functools import partial

from jepsen_like.simulation.broker.broker_application import BrokerApplication
from jepsen_like.simulation.broker.broker_swarm import (
    NO_AIM,
    Aim,
    broker_style,
    broker_swarm,
)
from jepsen_like.simulation.simulation import Simulation
from jepsen_like.simulation.trace import Trace

# The counts that a few hundred seeds together must reach, each at least once.
EXPECTED_OF_BROKERS = (
    "acknowledged messages",
    "answers: success",
    "answers: system busy",
    "answers: system error",
    "answers: topic not exist",
    "beginnings of the log given up",
    "changes of rules",
    "changes of settings",
    "dead letters delivered once more",
    "delayed messages delivered",
    "delayed messages dropped",
    "delayed messages moved out of retention's way",
    "foreign entries",
    "commits judged of topics made again",
    "groups moved under their consumers",
    "messages consumed of topics made again",
    "topics deleted under their consumers",
    "consumers in order that crashed",
    "kills inside disk calls",
    "logs begun anew",
    "logs cut at the beginning",
    "logs raised to the newest format",
    "looks at all queues",
    "members proven after a loss",
    "nodes closed in order",
    "messages consumed in order",
    "messages let through by filters",
    "messages popped",
    "messages that came again",
    "pops acknowledged",
    "pops judged of topics made again",
    "power cuts inside disk calls",
    "queue files lost",
    "queue files removed by retention",
    "queues locked by consumers in order",
    "queues made again from the log",
    "questions about transactions",
    "requests",
    "requests not permitted",
    "requests permitted by a rule",
    "snapshots awaited after a crash",
    "snapshots installed",
    "snapshots restored at the start",
    "transactions committed",
    "transactions given up",
    "transactions resumed",
    "transactions rolled back",
    "truncations",
    "wiped disks",
)


def broker_simulation(
    seed: int, nodes: int | None, fault_s: float | None, trace: Trace | None, aim: Aim = NO_AIM
) -> Simulation:
    """Return the run of a seed; `nodes`, `fault_s` and then `aim` replace its choices."""
    application = partial(BrokerApplication, seed, broker_style(seed, aim))
    return Simulation(broker_swarm(seed, nodes, fault_s, aim), trace, application)
