"""One member of a simulated group: a machine with a disk, and the process on it, if it runs."""

from __future__ import annotations

from dledger.core.membership.configuration import Configuration
from dledger.core.messages import Message
from dledger.core.replica import Replica, ReplicaConfig
from dledger.entry import BLANK_BYTES, HEADER_BYTES, Body
from dledger.errors import DiskFailed
from dledger.node.batches import Batches
from dledger.node.recovered_membership import recovered_membership
from dledger.store.log_store import SyncWork
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from jepsen_like.simulation.chance import Chance
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.node_process import (
    Arrivals,
    ChangeCall,
    NodeProcess,
    SessionCall,
    Surroundings,
)
from jepsen_like.simulation.snapshots import MemberSnapshots
from jepsen_like.simulation.virtual_clock import VirtualClock
from jepsen_like.simulation.virtual_disk import PowerCut, VirtualDisk
from jepsen_like.simulation.written_log import log_chains, log_changes

GROUP = "simulation"
FOLDER = "/data"
NUMBER_BYTES = 8  # what the body of every append begins with
# The largest entry of a session: its header and a token.
SESSION_BODY_BYTES = 64
# A slow sync takes up to so many election timeouts: others are elected and truncate meanwhile.
SLOW_SYNC_TIMEOUTS = 6.0
# Where a monotonic clock may stand when a run begins: the machine has run for some time.
LONGEST_UPTIME_S = 1_000.0
NEVER = float("-inf")  # the end of a lease that is none
# Calls until the power goes, when it goes inside the disk: a recovery makes a few dozen.
MOST_STEPS_TO_POWER_CUT = 25


class VirtualNode:
    """Starts, stops, pauses and turns one process in virtual time."""

    def __init__(self, name: str, began_with: Configuration, around: Surroundings) -> None:
        swarm = around.swarm
        self.name = name
        self.disk = VirtualDisk(Chance(swarm.seed, f"disk of {name}"))
        self.process: NodeProcess | None = None
        self.is_paused = False
        self._around = around
        self._loop = around.loop
        self._timing = Chance(swarm.seed, f"timing of {name}")
        self._elections = Chance(swarm.seed, f"elections of {name}")
        leadership = swarm.leadership
        self._config = ReplicaConfig(
            name,
            began_with,
            swarm.election_timeout_s,
            swarm.heartbeat_interval_s,
            leadership.max_clock_drift,
            leadership.preferred_leader,
            swarm.segment_bytes - HEADER_BYTES - BLANK_BYTES,
        )
        clocks = Chance(swarm.seed, f"clock of {name}")
        # The ends of what is allowed, more often than not.
        rate = 1.0 + leadership.clock_spread * clocks.choice((-1, -1, 1, 1, clocks.uniform(-1, 1)))
        self.clock = VirtualClock(rate, clocks.uniform(0.0, LONGEST_UPTIME_S))
        self._store_config = StoreConfig(
            segment_bytes=swarm.segment_bytes,
            index_segment_bytes=swarm.index_segment_bytes,
            max_body_bytes=max(swarm.load.largest_body_bytes + NUMBER_BYTES, SESSION_BODY_BYTES),
            spare_segments=0,
            checkpoint_bytes=swarm.segment_bytes // 3,  # so that power cuts meet them
        )
        self._arrivals = Arrivals.none()
        self._life = 0  # grows with every start and end: events of an older life are void
        self._turn_due = False
        self._timer_at = float("inf")

    @property
    def is_up(self) -> bool:
        """Whether there is a process; it may be paused."""
        return self.process is not None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process: open the store, which recovers it, and join the group."""
        around, now = self._around, self.clock.reads(self._loop.now)
        try:
            store = open_store(self.disk, FOLDER, self._store_config, GROUP, self.name)
            snapshots = MemberSnapshots(
                self.name,
                self.disk,
                FOLDER,
                GROUP,
                store,
                around.swarm.snapshots,
                around.coverage,
            )
            snapshots.open()
        except PowerCut:
            around.coverage.count("power cuts during recovery")
            self.crash(power=True)
            return
        except DiskFailed:
            around.coverage.count("failed syncs")
            self.crash(power=True)
            return
        first = store.first_index
        changes = log_changes(store, first, store.last_index)
        told = snapshots.awaited.header.index if snapshots.awaited is not None else -1
        around.invariants.recovered(
            self.name, log_chains(store), store.hard_state, changes, first, told
        )
        batches = Batches(store, around.swarm.batch_bytes)
        random = self._elections.random
        membership = recovered_membership(
            store, self._config.began_with, snapshots.opened.configuration
        )
        hard_state, source = snapshots.opened.hard_state, snapshots.source
        replica = Replica(
            self._config,
            store.view(),
            hard_state,
            batches,
            random,
            now,
            membership,
            source,
            store.standing,
        )
        self.process = NodeProcess(self.name, store, replica, batches, around, snapshots)
        if (restored := snapshots.opened.restored) is not None:
            index = restored.header.index
            replica.applied_to(index)
            around.invariants.restored(self.name, index, snapshots.machine.sums.sum)
        self.is_paused = False
        self._life += 1
        self._timer_at = float("inf")
        self.note(f"starts, end={store.last_index} {tuple(store.hard_state)}")
        around.network.examine_all()
        self._wake()

    def crash(self, *, power: bool) -> None:
        """The process ends between two instructions; with `power`, so does the machine."""
        self.note("power cut" if power else "kill -9")
        process, self.process = self.process, None
        self._life += 1
        self._arrivals = Arrivals.none()
        self._turn_due = False
        if power:
            self.disk.cut_power(self._around.swarm.faults.crash)
        else:
            self.disk.end_process()
        self._around.invariants.lease(self.name, 0, NEVER, self._loop.now)
        if process is not None:
            process.ended()
        self._around.network.process_ended(self.name)
        if not power:
            self._around.signs.process_ended(self.name)
        self._around.coverage.count("power cuts" if power else "kills")

    def wipe(self) -> None:
        """The machine is replaced by one with an empty disk. Its process is started later."""
        self.crash(power=True)
        self.note("its disk is empty")
        self.disk.wipe()
        self._around.invariants.wiped(self.name)

    def crash_inside_disk_call(self) -> None:
        """Let the power go at one of the next disk calls, whatever it is part of."""
        self.disk.steps_left = self._timing.randrange(MOST_STEPS_TO_POWER_CUT)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: what arrives waits."""
        self.is_paused = True
        self.note("paused")

    def resume(self) -> None:
        """Let a paused process go on."""
        self.is_paused = False
        self.note("resumed")
        self._wake()

    def note(self, what: str) -> None:
        """Write a line to the trace, if there is one."""
        if self._around.trace is not None:
            self._around.trace.note(self._loop.now, self.name, what)

    # --- what arrives ---------------------------------------------------------------------------

    def deliver(self, sender: str, message: Message) -> None:
        """A message of a peer arrived."""
        if self.is_up:
            self._arrivals.messages.append((sender, message))
            self._wake()

    def peer_lost(self, peer: str) -> None:
        """The connection to a peer broke."""
        if self.is_up:
            self._arrivals.link_changes.append((peer, False))
            self._wake()

    def peer_found(self, peer: str) -> None:
        """There is a connection to a peer again."""
        if self.is_up:
            self._arrivals.link_changes.append((peer, True))
            self._wake()

    @property
    def leader(self) -> str | None:
        """Whom the node follows; a leader follows nobody."""
        leader = self.process.replica.state.leader if self.process is not None else None
        return leader if leader != self.name else None

    def peer_gone(self, peer: str) -> None:
        """The process of a peer has ended, as far as can be seen from here."""
        if self.process is not None:
            self._arrivals.gone.append((peer, self.process.replica.state.term))
            self._wake()

    def append(self, numbers: list[int], bodies: list[Body]) -> None:
        """A client asks to append; the node must be up."""
        self._arrivals.appends.append((numbers, bodies))
        self._wake()

    def ask(self, call: SessionCall) -> None:
        """A client with a session asks for something; the node must be up."""
        self._arrivals.session_calls.append(call)
        self._wake()

    def read(self, ticket: int) -> None:
        """A client asks to read; the node must be up."""
        self._arrivals.reads.append(ticket)
        self._wake()

    def transfer_leadership(self, target: str | None) -> None:
        """An operator asks to hand leadership over; the node must be up."""
        self._arrivals.transfers.append(target)
        self._wake()

    def change(self, call: ChangeCall) -> None:
        """An operator asks to change the group; the node must be up."""
        self._arrivals.changes.append(call)
        self._wake()

    @property
    def is_asked_to_change(self) -> bool:
        """Whether an operator asked for a change that the process has not looked at."""
        return bool(self._arrivals.changes)

    def forget_leader(self) -> None:
        """Something outside takes the leader for dead; the node must be up."""
        self._arrivals.forgets += 1
        self._wake()

    # --- turns --------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._turn_due or self.is_paused or self.process is None:
            return
        self._turn_due = True
        delay_s = self._timing.wait_s(self._around.swarm.turn_mean_s)
        self._loop.after(delay_s, self._turn_event, self._life)

    def _turn_event(self, life: int) -> None:
        if life != self._life or self.process is None:
            return
        self._turn_due = False
        if self.is_paused:
            return
        try:
            self._turn(self.process)
        except PowerCut:
            self._around.coverage.count("power cuts inside disk calls")
            self.crash(power=True)
        except DiskFailed:
            self._around.coverage.count("failed syncs")
            self.crash(power=True)

    def _turn(self, process: NodeProcess) -> None:
        around, now = self._around, self.clock.reads(self._loop.now)
        arrivals, self._arrivals = self._arrivals, Arrivals.none()
        if around.trace is not None:
            self._trace_arrivals(arrivals)
        work = process.work if not arrivals.ended_syncs else None
        outgoing = process.turn(arrivals, now)
        lease = process.replica.lease
        until_s = self.clock.shows_at(lease.until) if lease is not None else NEVER
        term = process.replica.state.term
        around.invariants.lease(self.name, term, until_s, self._loop.now)
        around.invariants.after_turn(self.name, process.replica)
        if around.invariants.take_proven(self.name):
            around.coverage.count("members proven after a loss")
        for peer, message in outgoing:
            around.invariants.released(self.name, peer, message)
            around.candidacies.released(self.name, peer, message, process.replica)
            around.network.send(self.name, peer, message)
        if process.work is not None and process.work is not work:
            self._loop.after(self._sync_s(), self._sync_event, self._life)
        if process.has_to_apply:
            self._wake()
        self._set_timer(process)
        if around.trace is not None:
            self._trace_state(process)

    def _sync_s(self) -> float:
        swarm = self._around.swarm
        seconds = self._timing.wait_s(swarm.sync_mean_s)
        faults_over = self._loop.now >= swarm.fault_seconds
        if swarm.slow_sync and not faults_over and self._timing.happens(swarm.slow_sync):
            seconds = self._timing.uniform(0.0, SLOW_SYNC_TIMEOUTS * swarm.election_timeout_s)
        return seconds

    def _sync_event(self, life: int) -> None:
        process = self.process
        if life != self._life or process is None:
            return
        try:
            work = process.run_sync()
        except PowerCut:
            self._around.coverage.count("power cuts inside disk calls")
            self.crash(power=True)
        except DiskFailed:
            # The node stops by itself, and what the failed sync was to save is gone.
            self._around.coverage.count("failed syncs")
            self.crash(power=True)
        else:
            self._loop.after(self._timing.wait_s(0.000_1), self._sync_ended, life, work)

    def _sync_ended(self, life: int, work: SyncWork) -> None:
        if life == self._life:
            self._arrivals.ended_syncs.append(work)
            self._wake()

    def _set_timer(self, process: NodeProcess) -> None:
        deadline = process.replica.next_deadline()
        if deadline <= self.clock.reads(self._loop.now):
            raise InvariantViolated(
                "no busy loop", f"{self.name} wants another turn at once, for nothing"
            )
        if deadline < self._timer_at:
            self._timer_at = deadline
            at_s = self.clock.shows_at(deadline)
            self._loop.at(at_s, self._timer_event, self._life, deadline)

    def _timer_event(self, life: int, at: float) -> None:
        process = self.process
        if life != self._life or at != self._timer_at or process is None:
            return
        self._timer_at = float("inf")
        if process.replica.next_deadline() <= self.clock.reads(self._loop.now):
            self._wake()
        else:
            self._set_timer(process)

    # --- the trace ------------------------------------------------------------------------------

    def _trace_arrivals(self, arrivals: Arrivals) -> None:
        for peer, connected in arrivals.link_changes:
            self.note(f"{'connected to' if connected else 'lost'} {peer}")
        for peer, term in arrivals.gone:
            self.note(f"the process of {peer} is gone, t{term}")
        for sender, message in arrivals.messages:
            self.note(f"<- {sender} {describe(message)}")
        for work in arrivals.ended_syncs:
            self.note(f"synced {work.index} epoch={work.epoch} {work.hard_state}")
        for numbers, _ in arrivals.appends:
            self.note(f"asked to append {numbers[0]}..{numbers[-1]}")
        for ticket in arrivals.reads:
            self.note(f"asked to read {ticket}")
        for target in arrivals.transfers:
            self.note(f"asked to hand over to {target or 'anybody'}")
        for call in arrivals.changes:
            self.note(f"asked to change {call}")
        if arrivals.forgets:
            self.note("asked to forget its leader")

    def _trace_state(self, process: NodeProcess) -> None:
        state, view = process.replica.state, process.replica.view
        self.note(
            f"{state.role.name} t{state.term} vote={state.voted_for} end={view.last_index} "
            f"dur={state.durable} com={state.committed} app={state.applied} "
            f"group={state.membership.index}"
            f"{'' if state.proven else ' unproven'}"
        )


def describe(message: Message) -> str:
    """One line for a message, without the bytes it carries."""
    fields = [
        f"{name}={value.name if hasattr(value, 'name') else value}"
        for name, value in message._asdict().items()
        if name not in ("payload", "facts", "changes")
    ]
    return f"{type(message).__name__}({' '.join(fields)})"
