"""The members of one simulated group, and everything that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.core.membership.configuration import Configuration
from jepsen_like.chance import Chance
from jepsen_like.simulation.candidacies import Candidacies
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.end_signs import EndSigns
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.group_history import founding
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.swarm import Swarm
from jepsen_like.simulation.trace import Trace
from jepsen_like.simulation.virtual_network import VirtualNetwork
from jepsen_like.simulation.virtual_node import Application, VirtualNode

# Makes the application that the members run on top of the log.
MakeApplication = Callable[[History, Invariants, Coverage, EventLoop], Application]


class Group(NamedTuple):
    """Members that are not started yet, those that may join later among them."""

    nodes: list[VirtualNode]
    around: Surroundings
    application: Application


def simulated_group(swarm: Swarm, trace: Trace | None, application: MakeApplication) -> Group:
    loop = EventLoop(swarm.fault_s)
    names = [f"n{number}" for number in range(swarm.nodes + swarm.churn.spares)]
    began_with = founding(names[: swarm.nodes])
    network = VirtualNetwork(loop, swarm.network, Chance(swarm.seed, "network"))
    coverage = Coverage()
    invariants, history = Invariants(names, began_with), History()
    around = Surroundings(
        swarm,
        loop,
        network,
        invariants,
        history,
        coverage,
        trace,
        EndSigns(swarm, loop, network, coverage),
        Candidacies(),
    )
    runs = application(history, invariants, coverage, loop)
    invariants.in_doubt.update(names)  # all begin with an empty folder
    # A spare knows no member until it is added.
    nodes = [
        VirtualNode(
            name, began_with if name in began_with.members else Configuration(), around, runs
        )
        for name in names
    ]
    for node in nodes:
        network.add(node.name, node)
    return Group(nodes, around, runs)
