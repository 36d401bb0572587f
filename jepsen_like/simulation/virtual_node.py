"""One member of a simulated group: a machine with a disk, and the process on it, if it runs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.membership.configuration import Configuration
from dledger.core.messages import Message
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import SnapshotSource
from dledger.entry import Body
from dledger.errors import DiskFailed, DLedgerError
from dledger.node.recovered_membership import recovered_membership
from dledger.snapshots.beside import Continuation
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.store.disk_room import FILE_NAME, DiskRoom, Reserve
from dledger.store.folder import node_folder
from dledger.store.log_store import SyncWork
from jepsen_like.chance import Chance
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants, InvariantViolated
from jepsen_like.simulation.node_process import (
    Arrivals,
    ChangeCall,
    NodeProcess,
    SessionCall,
    Surroundings,
)
from jepsen_like.simulation.node_settings import (
    NOTE_FOLDERS,
    STATE_FOLDER,
    member_settings,
    node_config,
    replica_config,
)
from jepsen_like.simulation.node_trace import arrival_lines, state_line
from jepsen_like.simulation.virtual_clock import VirtualClock
from jepsen_like.simulation.virtual_disk import DiskCopy, DiskImage, PowerCut, VirtualDisk
from jepsen_like.simulation.watched_machine import MemberMachine, WatchedMachine
from jepsen_like.simulation.witness import Witness
from jepsen_like.simulation.written_log import log_chains, log_changes

# A slow sync takes up to so many election timeouts: meanwhile others are elected and truncate.
SLOW_SYNC_TIMEOUTS = 6.0
# The highest time of a monotonic clock when a run begins: the machine has run for some time.
LONGEST_UPTIME_S = 1_000.0
NO_LEASE = float("-inf")  # the end of a missing lease
# The mean time to start a thread, or to get its result.
THREAD_MEAN_S = 0.000_1
# Disk calls until a power cut that happens inside one: a recovery makes a few dozen.
MOST_STEPS_TO_POWER_CUT = 25


class Application:
    """Makes the machines of members, and puts load on them.

    This one is that of bare members, which have nothing besides the sums and sessions of the tier.
    """

    def __init__(self, history: History, invariants: Invariants) -> None:
        self._history = history
        self._invariants = invariants

    def machine(self, name: str, disk: VirtualDisk) -> MemberMachine:
        """Return the machine of a process that starts now. May raise PowerCut."""
        return WatchedMachine(name, self._history, self._invariants)

    def started(self, node: VirtualNode) -> None:
        """Note that the process of a member runs."""

    def ended(self, node: VirtualNode) -> None:
        """Note that the process of a member has ended, in order or not."""

    def begin(self, nodes: Sequence[VirtualNode]) -> None:
        """Put load on the members."""

    def stop(self) -> None:
        """End faults and load."""

    def is_settled(self, members: Sequence[VirtualNode]) -> bool:
        """Return whether these members have nothing left to do; called after `stop`."""
        return bool(members)

    def end(self) -> None:
        """Clean up: the run is over, in order or not."""

    def check(self, members: Sequence[VirtualNode]) -> None:
        """Check members that agree. Raises InvariantViolated."""


class VirtualNode:
    def __init__(
        self, name: str, began_with: Configuration, around: Surroundings, application: Application
    ) -> None:
        swarm = around.swarm
        self.name = name
        self.disk = VirtualDisk(Chance(swarm.seed, f"disk of {name}"))
        self.disk.on_fault = around.coverage.count
        self.process: NodeProcess | None = None
        self.is_paused = False
        self._around = around
        self._application = application
        self._loop = around.loop
        self._timing = Chance(swarm.seed, f"timing of {name}")
        self._elections = Chance(swarm.seed, f"elections of {name}")
        self._notes = Chance(swarm.seed, f"notes of {name}")
        self._mislaid: tuple[DiskImage, Witness] | None = None
        leadership = swarm.leadership
        self._replica_config = replica_config(name, began_with, swarm)
        clocks = Chance(swarm.seed, f"clock of {name}")
        # More often than not one of the extremes that are allowed.
        rate = 1.0 + leadership.clock_spread * clocks.choice((-1, -1, 1, 1, clocks.uniform(-1, 1)))
        self.clock = VirtualClock(rate, clocks.uniform(0.0, LONGEST_UPTIME_S))
        self.config = node_config(name, began_with, swarm)
        self._folder = node_folder(str(self.config.data_dir), name)
        self._settings = member_settings(swarm)
        self._arrivals = Arrivals()
        # changes with every start and end of the process: events of an older life are void
        self.life = 0
        self._turn_due = False
        self._timer_at = self._look_at = float("inf")
        self._apply_due = False
        self._continuations: list[Continuation] = []  # of a paused process

    @property
    def is_up(self) -> bool:
        """Whether there is a process; it may be paused."""
        return self.process is not None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process: recover the store, and join the group."""
        around = self._around
        self.life += 1
        try:
            machine = self._application.machine(self.name, self.disk)
            opened = open_and_restore(self.disk, self.config, machine, self._room(), STATE_FOLDER)
        except PowerCut:
            around.coverage.count("power cuts during recovery", self.disk.takes_power)
            self.crash(power=self.disk.takes_power)
            return
        except (DiskFailed, OSError) as error:
            self._disk_failed(error)
            return
        store = opened.store
        first = store.first_index
        changes = log_changes(store, first, store.last_index)
        told = opened.awaited.header.index if opened.awaited is not None else -1
        around.invariants.recovered(
            self.name, log_chains(store), store.hard_state, changes, first, told
        )
        self.is_paused = self._turn_due = self._apply_due = False
        self._timer_at = self._look_at = float("inf")
        self.process = NodeProcess(
            self.name,
            self._settings,
            opened,
            machine,
            lambda batches, source: self._replica(opened, batches, source),
            self,
            around,
        )
        self.note(f"starts, end={store.last_index} {tuple(store.hard_state)}")
        around.network.examine_all()
        self.wake()
        self.wake_look()
        self._application.started(self)

    def _room(self) -> DiskRoom:
        size = self._around.swarm.room.reserve_bytes
        reserve = Reserve(self.disk, self._folder, size)
        return DiskRoom(self.disk, reserve, lambda: self.disk.free_bytes)

    @property
    def has_reserve(self) -> bool:
        """Whether the process runs and has taken its reserve of the disk."""
        return self.is_up and self.disk.exists(f"{self._folder}/{FILE_NAME}")

    def _replica(self, opened: Opened, batches: BatchSizer, source: SnapshotSource) -> Replica:
        store = opened.store
        replica = Replica(
            self._replica_config._replace(told=opened.told),
            store.view(),
            opened.hard_state,
            batches,
            self._elections.random,
            self.clock_reads(),
            recovered_membership(store, self._replica_config.began_with, opened.configuration),
            source,
            store.standing,
            store.orphans,
        )
        if opened.restored is not None:
            replica.applied_to(opened.restored.header.index)
        return replica

    def crash(self, *, power: bool) -> None:
        """Kill the process between two steps; with `power`, cut the machine's power."""
        self.note("power cut" if power else "kill -9")
        process, self.process = self.process, None
        self.life += 1
        self._arrivals = Arrivals()
        self._turn_due = False
        self._continuations.clear()
        if power:
            self.disk.cut_power(self._around.swarm.faults.crash)
        else:
            self.disk.end_process()
        self._around.invariants.lease(self.name, 0, NO_LEASE, self._loop.now)
        if process is not None:
            process.killed()
            self._application.ended(self)
        self._around.network.process_ended(self.name)
        if not power:
            self._around.signs.process_ended(self.name)
        self._around.coverage.count("power cuts" if power else "kills")

    def close(self) -> None:
        """Close the process in order; it must be up and not paused."""
        process = self.process
        assert process is not None
        self.note("closes")
        try:
            process.close()
        except PowerCut:
            self._crash_inside_disk_call()
        except (DiskFailed, OSError) as error:
            self._disk_failed(error)
        else:
            self._around.coverage.count("nodes closed in order")
            self.crash(power=False)

    def wipe(self) -> None:
        """Replace the disk by an empty one. The process is started later.

        Notes are in two folders, and one of them is on another disk.
        """
        self.crash(power=True)
        self.note("its disk is empty")
        self.disk.wipe(self._notes.choice(NOTE_FOLDERS))
        self._around.invariants.wiped(self.name)

    def restore(self, copy: DiskCopy) -> None:
        """Replace the folder by an older copy. The process is started later."""
        self.crash(power=False)
        self.note("its folder is an older copy")
        self.disk.restore(copy)
        self._around.invariants.went_back(self.name)

    def mislay(self) -> None:
        """Take the disk out, for `put_back` later."""
        self.crash(power=True)
        self.note("its disk is mislaid")
        self._mislaid = (self.disk.mislaid(), self._around.invariants.mislaid(self.name))

    def put_back(self) -> None:
        """Put the mislaid disk back. The process is started later."""
        assert self._mislaid is not None
        image, witness = self._mislaid
        self._mislaid = None
        self.crash(power=True)
        self.note("its disk is back")
        self.disk.put_back(image)
        self._around.invariants.put_back(witness)

    def crash_inside_disk_call(self, *, power: bool) -> None:
        """Crash inside one of the next disk calls."""
        self.disk.takes_power = power
        self.disk.steps_left = self._timing.randrange(MOST_STEPS_TO_POWER_CUT)

    def _crash_inside_disk_call(self) -> None:
        power = self.disk.takes_power
        what = "power cuts" if power else "kills"
        self._around.coverage.count(f"{what} inside disk calls")
        self.crash(power=power)

    def _disk_failed(self, error: DiskFailed | OSError) -> None:
        """Stop the node, as a node does by itself; the writes of the failed sync are lost."""
        if error.errno == errno.ENOSPC:
            raise InvariantViolated("full disks end no member", f"{self.name}: {error}")
        self._around.coverage.count("failed syncs")
        self.crash(power=True)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: messages wait."""
        self.is_paused = True
        self.note("paused")

    def put_right(self) -> None:
        """Cancel planned faults of the disk; resume or start the process."""
        self.disk.spare()
        self.resume()
        if not self.is_up:
            self.start()

    def resume(self) -> None:
        """Let the process go on, if it is paused."""
        if not self.is_paused:
            return
        self.is_paused = False
        self.note("resumed")
        self.wake()
        continuations, self._continuations = self._continuations, []
        for go_on in continuations:
            self._step(go_on)
        if self.process is not None:
            self.wake_applier()
            self.wake_look()

    def note(self, what: str) -> None:
        if self._around.trace is not None:
            self._around.trace.note(self._loop.now, self.name, what)

    # --- messages, and requests to a node that is up
    # -----------------------------------------------

    def deliver(self, sender: str, message: Message) -> None:
        if self.is_up:
            self._arrivals.messages.append((sender, message))
            self.wake()

    def peer_lost(self, peer: str) -> None:
        self._link_changed(peer, connected=False)

    def peer_found(self, peer: str) -> None:
        self._link_changed(peer, connected=True)

    def _link_changed(self, peer: str, *, connected: bool) -> None:
        if self.process is not None:
            self.note(f"{'connected to' if connected else 'lost'} {peer}")
            self.process.member.turn.link_changed(peer, connected)
            self.wake()

    @property
    def leader(self) -> str | None:
        """The leader that the node follows; None for a leader."""
        leader = self.process.replica.state.leader if self.process is not None else None
        return leader if leader != self.name else None

    def peer_gone(self, peer: str) -> None:
        if self.process is not None and self.process.member.turn.peer_gone(peer):
            self.note(f"the process of {peer} is gone")
            self.wake()

    def append(self, numbers: list[int], bodies: list[Body]) -> None:
        self._arrivals.appends.append((numbers, bodies))
        self.wake()

    def ask(self, call: SessionCall) -> None:
        self._arrivals.session_calls.append(call)
        self.wake()

    def call(self, do: Callable[[], None]) -> None:
        """Call `do` at the beginning of the next turn."""
        self._arrivals.calls.append(do)
        self.wake()

    def read(self, ticket: int) -> None:
        self._arrivals.reads.append(ticket)
        self.wake()

    def transfer_leadership(self, target: str | None) -> None:
        self._arrivals.transfers.append(target)
        self.wake()

    def change(self, call: ChangeCall) -> None:
        self._arrivals.changes.append(call)
        self.wake()

    @property
    def is_asked_to_change(self) -> bool:
        """Whether an operator asked for a change that the process has not looked at."""
        return bool(self._arrivals.changes)

    def forget_leader(self) -> None:
        self._arrivals.forgets += 1
        self.wake()

    # --- what the process asks of its machine ----------------------------------------------------

    def clock_reads(self) -> float:
        return self.clock.reads(self._loop.now)

    def wake(self) -> None:
        if self._turn_due or self.is_paused or self.process is None:
            return
        self._turn_due = True
        delay_s = self._timing.wait_s(self._around.swarm.turn_mean_s)
        self._loop.after(delay_s, self._turn_event, self.life)

    def wake_applier(self) -> None:
        if not self._apply_due:
            self._apply_due = True
            delay_s = self._timing.wait_s(self._around.swarm.turn_mean_s)
            self._loop.after(delay_s, self._apply_event, self.life)

    def wake_look(self) -> None:
        self._look_at = self.clock_reads()
        self._loop.after(0.0, self._look_event, self.life, self._look_at)

    def begin_sync(self) -> None:
        self._loop.after(self._sync_s(), self._sync_event, self.life)

    def beside(self, work: Callable[[], Continuation]) -> None:
        self._loop.after(self._sync_s(), self._work_event, self.life, work)

    # --- events ---------------------------------------------------------------------------------

    def _step(self, do: Callable[[], None]) -> bool:
        """Run a step of the process and check it; return whether the process still runs."""
        around, process = self._around, self.process
        assert process is not None
        try:
            do()
        except PowerCut:
            self._crash_inside_disk_call()
            return False
        except DiskFailed as error:
            self._disk_failed(error)
            return False
        lease = process.replica.lease
        until_s = self.clock.shows_at(lease.until) if lease is not None else NO_LEASE
        term = process.replica.state.term
        around.invariants.lease(self.name, term, until_s, self._loop.now)
        around.invariants.after_turn(self.name, process.replica)
        if around.invariants.take_proven(self.name):
            around.coverage.count("members proven after a loss")
        process.has_moved(self.clock_reads())
        self._set_timer(process)
        if around.trace is not None:
            self.note(state_line(process.replica))
        return True

    def _is_over(self, life: int) -> bool:
        return life != self.life or self.process is None

    def _turn_event(self, life: int) -> None:
        process = self.process
        if self._is_over(life) or process is None:
            return
        self._turn_due = False
        if self.is_paused:
            return
        arrivals, self._arrivals = self._arrivals, Arrivals()
        if self._around.trace is not None:
            for line in arrival_lines(arrivals):
                self.note(line)
        if not self._step(lambda: process.turn(arrivals, self.clock_reads())):
            return
        if process.member.turn.next_deadline <= self.clock_reads() and not self._turn_due:
            raise InvariantViolated(
                "no busy loop", f"{self.name} wants another turn at once, for nothing"
            )

    def _apply_event(self, life: int) -> None:
        process = self.process
        if self._is_over(life) or process is None:
            return
        self._apply_due = False
        if self.is_paused:
            return
        before = process.replica.state.applied
        if self._step(process.go_on_applying) and process.replica.state.applied > before:
            self.wake_applier()

    def _look_event(self, life: int, at: float) -> None:
        process = self.process
        if self._is_over(life) or process is None or at != self._look_at or self.is_paused:
            return
        if self._step(lambda: process.member.look(self.clock_reads())):
            now, at = self.clock_reads(), process.member.next_look_at
            self._look_at = max(at, now)
            at_s = max(self.clock.shows_at(self._look_at), self._loop.now + THREAD_MEAN_S)
            self._loop.at(at_s, self._look_event, self.life, self._look_at)

    def _sync_s(self) -> float:
        swarm = self._around.swarm
        sync_s = self._timing.wait_s(swarm.sync_mean_s)
        faults_over = self._loop.now >= swarm.fault_s
        if swarm.slow_sync and not faults_over and self._timing.happens(swarm.slow_sync):
            sync_s = self._timing.uniform(0.0, SLOW_SYNC_TIMEOUTS * swarm.election_timeout_s)
        return sync_s

    def _sync_event(self, life: int) -> None:
        process = self.process
        if self._is_over(life) or process is None:
            return
        try:
            work, error = process.syncs.run_begun()
        except PowerCut:
            self._crash_inside_disk_call()
        else:
            self._loop.after(
                self._timing.wait_s(THREAD_MEAN_S), self._sync_ended, life, work, error
            )

    def _sync_ended(self, life: int, work: SyncWork, error: DLedgerError | None) -> None:
        process = self.process
        if self._is_over(life) or process is None:
            return
        self.note(f"synced {work.index} epoch={work.epoch} {work.hard_state}")
        process.syncs.ended()
        process.member.turn.sync_ended(work, error)
        self.wake()

    def _work_event(self, life: int, work: Callable[[], Continuation]) -> None:
        if self._is_over(life):
            return
        try:
            go_on = work()
        except PowerCut:
            self._crash_inside_disk_call()
        except DiskFailed as error:
            self._disk_failed(error)
        else:
            self._loop.after(self._timing.wait_s(THREAD_MEAN_S), self._go_on_event, life, go_on)

    def _go_on_event(self, life: int, go_on: Continuation) -> None:
        if self._is_over(life):
            return
        if self.is_paused:
            self._continuations.append(go_on)
        else:
            self._step(go_on)

    def _set_timer(self, process: NodeProcess) -> None:
        deadline = process.member.turn.next_deadline
        if deadline < self._timer_at:
            self._timer_at = deadline
            at_s = self.clock.shows_at(deadline)
            self._loop.at(at_s, self._timer_event, self.life, deadline)

    def _timer_event(self, life: int, at: float) -> None:
        process = self.process
        if self._is_over(life) or at != self._timer_at or process is None:
            return
        self._timer_at = float("inf")
        if process.member.turn.next_deadline <= self.clock_reads():
            self.wake()
        else:
            self._set_timer(process)


def leaders_of(nodes: Sequence[VirtualNode]) -> list[VirtualNode]:
    """Return the members that consider themselves leaders."""
    return [node for node in nodes if node.process is not None and node.process.leads]
