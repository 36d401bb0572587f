"""Has one, several or all members do nothing for a while and go on together, as a busy or paused
machine does: loops come late, timers fire late, messages wait in order.
"""

from __future__ import annotations

from dledger.core.member_state import Role
from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.node_process import Surroundings
from jepsen_like.simulation.virtual_node import VirtualNode

# A stall takes at most this multiple of the mean: no run waits for ever.
LONGEST_FACTOR = 4.0
# Members go on within so many election timeouts of one another. That is too short for one to
# take another for silent.
APART_TIMEOUTS = 0.1
# Where no leader may be replaced, in election timeouts: how long a leader alone may stall, how long
# its followers may, and how long it is calm between two stalls.
LEADER_TIMEOUTS = 0.3
FOLLOWERS_TIMEOUTS = 1.8
CALM_TIMEOUTS = 3.0


class Stalls:
    """Stalls members while there are faults.

    Where nothing else goes wrong, it checks that no stall replaced a leader, though stalls of all
    members may take much longer than elections.
    """

    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        self._nodes = nodes
        self._around = around
        self._loop = around.loop
        self._timeout_s = around.swarm.election_timeout_s
        self._style = around.swarm.faults
        self._judges = around.swarm.only_stalls
        self._chance = Chance(around.swarm.seed, "stalls of members")
        self._reign: tuple[str, int] | None = None  # the leader that must stay, and its term

    def start(self) -> None:
        self._again(0.0)

    def _again(self, stalled_s: float) -> None:
        if self._style.stall_every_s == NEVER:
            return
        wait_s = stalled_s + self._chance.wait_s(self._style.stall_every_s)
        if self._judges:
            wait_s += CALM_TIMEOUTS * self._timeout_s
        if self._loop.now + wait_s < self._loop.faults_end_s:
            self._loop.after(wait_s, self._stall)

    def _stall(self) -> None:
        if self._judges and not self._reigns():
            self._again(0.0)  # the first election goes on
            return
        self.judge()
        chance = self._chance
        size = chance.choice((1, len(self._nodes), len(self._nodes), None))
        nodes = self._followers() if size is None else chance.sample(self._nodes, size)
        nodes = [node for node in nodes if node.is_up and not node.is_paused]
        mean_s = self._style.stall_mean_s
        stall_s = min(chance.wait_s(mean_s), mean_s * LONGEST_FACTOR)
        if self._judges and len(nodes) < len(self._nodes):
            leads = any(node.leader is None for node in nodes)
            timeouts = LEADER_TIMEOUTS if leads else FOLLOWERS_TIMEOUTS
            stall_s = min(stall_s, timeouts * self._timeout_s)
        what = "all" if len(nodes) == len(self._nodes) else "some"
        self._around.coverage.count(f"stalls of {what} members")
        for node in nodes:
            node.pause()
            apart_s = chance.uniform(0.0, APART_TIMEOUTS * self._timeout_s)
            self._loop.after(stall_s + apart_s, node.resume)
        self._again(stall_s)

    def _followers(self) -> list[VirtualNode]:
        return [node for node in self._nodes if node.leader is not None]

    def _reigns(self) -> bool:
        """Return whether one member leads and all others follow it; from then on it must stay."""
        if self._reign is None:
            leaders = {node.leader for node in self._followers()}
            if len(leaders) == 1 and len(self._followers()) == len(self._nodes) - 1:
                self._reign = self._leads(str(leaders.pop()))
        return self._reign is not None

    def _leads(self, name: str) -> tuple[str, int] | None:
        """Return the member and the highest term, if it leads in that term."""
        terms = {
            node.name: node.process.replica.state.term
            for node in self._nodes
            if node.process is not None
        }
        process = next(node.process for node in self._nodes if node.name == name)
        if process is None or process.replica.state.role is not Role.LEADER:
            return None
        return (name, terms[name]) if terms[name] == max(terms.values()) else None

    def judge(self) -> None:
        """Check that the leader leads in its term. Raises InvariantViolated."""
        if self._reign is not None and self._leads(self._reign[0]) != self._reign:
            name, term = self._reign
            raise InvariantViolated(
                "a stall replaces no leader", f"{name} no longer leads all in term {term}"
            )
