"""Signs that a process has ended: its connections are reset, and new ones are refused.

They can be wrong: a device between two machines may refuse connections to a leader that runs.
"""

from __future__ import annotations

from jepsen_like.chance import Chance
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.swarm import Swarm
from jepsen_like.simulation.virtual_network import VirtualNetwork

# From the end of a process to the refusal of a new connection to it, on the average.
REFUSED_MEAN_S = 0.005
# Share of the wrong signs that all members get at once, and not one member only.
WRONG_FOR_ALL = 0.5


class EndSigns:
    """Gives the signs of a run. Draws from a stream of its own, also for signs without effect."""

    def __init__(
        self, swarm: Swarm, loop: EventLoop, network: VirtualNetwork, coverage: Coverage
    ) -> None:
        self._style = swarm.signs
        self._loop = loop
        self._network = network
        self._coverage = coverage
        self._chance = Chance(swarm.seed, "signs of an end")

    def start(self) -> None:
        self._loop.fault(self._chance, self._style.wrong_every_s, self._give_wrong_sign)

    def process_ended(self, name: str) -> None:
        """Let the others notice that a process was killed while its machine runs on."""
        if not self._style.ends_seen:
            return
        for other in self._network.endpoints:
            if other != name:
                delay_s = self._chance.wait_s(REFUSED_MEAN_S)
                self._loop.after(delay_s, self._refuse, other, name)

    def _refuse(self, member: str, name: str) -> None:
        endpoints, network = self._network.endpoints, self._network
        # A process that runs again accepts the connection; a cut link gives no answer.
        if not endpoints[name].is_up and network.answers(member, name):
            endpoints[member].peer_gone(name)

    def _give_wrong_sign(self) -> None:
        endpoints = list(self._network.endpoints.values())
        victim = self._chance.choice(endpoints)
        for_all = self._chance.happens(WRONG_FOR_ALL)
        for endpoint in endpoints if for_all else [victim]:
            leader = endpoint.leader
            if leader is not None and self._network.endpoints[leader].is_up:
                self._coverage.count("wrong signs of an end")
                endpoint.peer_gone(leader)
        self.start()
