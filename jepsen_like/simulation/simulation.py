"""One run: a group, its clients and its faults, from a seed to a verdict."""

from __future__ import annotations

from dledger.core.snapshot.snapshot_sender import REFUSED_RETRY_S
from dledger.entry import Entry, decode_entries
from dledger.errors import DLedgerError
from jepsen_like.simulation.churn import Churn
from jepsen_like.simulation.clients import Told
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.faults import Faults
from jepsen_like.simulation.full_disks import FullDisks
from jepsen_like.simulation.group import MakeApplication, simulated_group
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.mislaid_disks import MislaidDisks
from jepsen_like.simulation.restores import Restores
from jepsen_like.simulation.session_workload import SessionWorkload
from jepsen_like.simulation.stalls import Stalls
from jepsen_like.simulation.swarm import Swarm
from jepsen_like.simulation.trace import Trace
from jepsen_like.simulation.virtual_node import Application, VirtualNode, leaders_of
from jepsen_like.simulation.wipes import Wipes
from jepsen_like.simulation.witness import broken_promise
from jepsen_like.simulation.workload import Workload
from jepsen_like.simulation.written_log import READ_BYTES

# How long a healed group may take to elect, commit and agree: a few rounds of split votes, each
# of at most two election timeouts, and the time to finish the backlog of slow disks.
MOST_TIMEOUTS_TO_ELECT = 30.0
# After a disk failed to take a snapshot, the leader waits before it sends the next one.
MOST_CATCH_UP_S = 15.0 + REFUSED_RETRY_S
# How often convergence is checked, in election timeouts.
LOOK_EVERY = 0.25


class Simulation:
    def __init__(
        self,
        swarm: Swarm,
        trace: Trace | None = None,
        application: MakeApplication = lambda history, invariants, *_: Application(
            history, invariants
        ),
    ) -> None:
        group = simulated_group(swarm, trace, application)
        self._around = around = group.around
        self._nodes = group.nodes
        self._loop = around.loop
        self.coverage = around.coverage
        self._application = group.application
        self._workload = Workload(self._nodes, around)
        self._session_workload = SessionWorkload(self._nodes, around)
        self._churn = Churn(self._nodes, around)
        self._faults = Faults(self._nodes, around)
        self._stalls = Stalls(self._nodes, around)
        self._restores = Restores(self._nodes, around)
        self._mislaid = MislaidDisks(self._nodes, around)
        self._wipes = Wipes(self._nodes, around, self._mislaid)
        self._full_disks = FullDisks(self._nodes, around)
        self._swarm = swarm

    @property
    def virtual_s(self) -> float:
        """The virtual seconds since the run began."""
        return self._loop.now

    def run(self) -> None:
        """Run to the end. Raises Failure with the first promise that was broken."""
        try:
            self._application.begin(self._nodes)
            for node in self._nodes:
                node.start()
            self._workload.start()
            self._session_workload.start()
            self._churn.start()
            self._faults.start()
            self._wipes.start()
            self._stalls.start()
            self._restores.start()
            self._mislaid.start()
            self._full_disks.start()
            self._around.signs.start()
            self._loop.run_until(self._swarm.fault_s)
            self._stalls.judge()
            self._heal()
            self._converge()
            self._compare()
            self._application.check(self._members())
        except (InvariantViolated, DLedgerError) as error:
            raise Failure(self._swarm.seed, self._loop.now, *broken_promise(error)) from error
        finally:
            self._application.end()
        network = self._around.network
        self.coverage.count("messages", network.sent)
        self.coverage.count("lost messages", network.lost)
        self.coverage.count("duplicated messages", network.duplicated)
        self.coverage.count("events", self._loop.count)

    # --- after the faults -------------------------------------------------------------------------

    def _heal(self) -> None:
        """End all faults: from here on the group must make progress."""
        if self._around.trace is not None:
            self._around.trace.note(self._loop.now, "-", "everything is put right")
        self._workload.stop()
        self._session_workload.stop()
        self._churn.stop()
        self._application.stop()
        self._around.network.calm()
        self._mislaid.stop()
        self._full_disks.stop()
        self._faults.stop()

    def _converge(self) -> None:
        """Wait for one leader, a new commit, and every entry applied by all, in bounded time."""
        timeout_s = self._swarm.election_timeout_s
        bound_s = timeout_s * MOST_TIMEOUTS_TO_ELECT + MOST_CATCH_UP_S
        give_up_s = self._loop.now + bound_s
        probes: list[int] = []
        while self._loop.now < give_up_s:
            self._loop.run_until(self._loop.now + timeout_s * LOOK_EVERY)
            self._churn.end_joint_phases()
            if self._probe_acknowledged(probes) and self._agreed():
                return
        raise InvariantViolated("progress after healing", f"no agreement within {bound_s:.1f} s")

    def _probe_acknowledged(self, probes: list[int]) -> bool:
        """Return whether a probing append is acknowledged; make another one if none is."""
        history = self._around.history
        if any(history.told(number) is Told.ACKNOWLEDGED for number in probes):
            return True
        leaders = leaders_of(self._nodes)
        if len(leaders) == 1:
            probes += self._workload.append_to(leaders[0], 1)
        return False

    def _members(self) -> list[VirtualNode]:
        """Return the members of the group, the leader first; none unless exactly one leads."""
        leaders = leaders_of(self._nodes)
        if len(leaders) != 1 or leaders[0].process is None:
            return []
        group = leaders[0].process.replica.state.membership.configuration
        if group.is_joint:
            return []
        others = [node for node in self._nodes if node.name in group.members - {leaders[0].name}]
        return [leaders[0], *others]

    def _agreed(self) -> bool:
        members = self._members()
        processes = [node.process for node in members if node.process is not None]
        ends = {process.store.last_index for process in processes}
        applied = {process.replica.state.applied for process in processes}
        return (
            bool(members)
            and len(processes) == len(members)
            and applied == ends == {max(ends)}
            and all(process.replica.state.proven for process in processes)
            and not any(process.member.room.is_short for process in processes)
            and self._application.is_settled(members)
        )

    def _compare(self) -> None:
        """Check that the stores hold the same bytes, and that the answers to clients fit them."""
        history, members = self._around.history, self._members()
        for node in members:
            first, entries = self._log(node)
            if entries != history.entries[first:]:
                raise InvariantViolated("equal bytes", f"{node.name} differs from what was applied")
        machines = [node.process.machine for node in members if node.process is not None]
        if len({machine.sums.sum for machine in machines}) != 1:
            raise InvariantViolated("machines agree", "different states at the end")
        history.check(history.entries)
        history.sessions.check([machine.sessions for machine in machines], history.entries)

    @staticmethod
    def _log(node: VirtualNode) -> tuple[int, list[Entry]]:
        """Return where a node's log begins, and its entries."""
        if node.process is None:
            raise InvariantViolated("progress after healing", f"{node.name} is down")
        store = node.process.store
        first = store.first_index
        entries: list[Entry] = []
        while (index := first + len(entries)) <= store.last_index:
            entries += decode_entries(store.read(index, store.last_index, READ_BYTES))
        return first, entries
