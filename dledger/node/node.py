"""A node: one running member of a group, with the methods that an application calls."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import trio

from dledger.config import NodeConfig, check_changeable
from dledger.core.member_state import Role
from dledger.core.membership.configuration_change import Change, Transition
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.orphans import Orphans, orphans_text
from dledger.core.replica import Outcomes
from dledger.entry import Body, Entry, decode_entries
from dledger.errors import (
    BodyInvalid,
    Fatal,
    MachineStopped,
    MachineTooOld,
    OtherLoop,
    OutsideLog,
    PeerFault,
    ReadUnavailable,
    Rejected,
)
from dledger.home_loop import HomeLoop
from dledger.network.links import GroupLinks, Links
from dledger.node.admission_log import AdmissionLog
from dledger.node.append_gate import AppendGate
from dledger.node.driver import Driver
from dledger.node.group_changes import GroupChanges
from dledger.node.growth_watch import GrowthWatch
from dledger.node.leader_noops import LeaderNoops
from dledger.node.local_way import local_session
from dledger.node.member import Member
from dledger.node.member_identity import MemberIdentity
from dledger.node.member_replica import member_replica, member_settings
from dledger.node.node_status import node_status
from dledger.node.stepping_aside import SteppingAside
from dledger.node.tally import Tally
from dledger.node_end import NodeEnd, fenced, node_ending
from dledger.renamed import renamed_arguments
from dledger.serving.client_server import ClientServer
from dledger.serving.group_port import GroupPort
from dledger.serving.host_parts import HostParts
from dledger.serving.served_queries import ServedQueries
from dledger.serving.served_watches import ServedWatches
from dledger.sessions.session import DEFAULT_TIMEOUT_S, DEFAULT_TTL_S, Session
from dledger.sessions.session_errors import SessionsOff
from dledger.sessions.session_gate import SessionGate
from dledger.sessions.with_sessions import WithSessions
from dledger.snapshots.restoring import Opened
from dledger.state_machine import StateMachine
from dledger.status import RoleChange, Status
from dledger.store.push_check import PushCheck
from dledger.store.recovered import SegmentBegin
from dledger.store.snapshot_folder import Snapshot
from dledger.unwrapping_nursery import unwrapping_nursery
from dledger.waits.call_waits import wait_appended, wait_read, wait_snapshot, wait_transferred
from dledger.waits.iterators import CommittedEntries, RoleChanges
from dledger.waits.leadership_watch import LeadershipWatch
from dledger.waits.pending_appends import Appended, Done
from dledger.waits.progress import Progress
from dledger.waits.read_problem import behind, too_old

logger = logging.getLogger(__name__)

# Bytes of entries that `committed` reads at once.
_ITERATE_BYTES = 256 * 1024


class Node:
    """A running member. Made by `open_node`; call its methods from its own trio thread."""

    def __init__(
        self, config: NodeConfig, opened: Opened, machine: StateMachine, host: HostParts
    ) -> None:
        self.config = config
        self._store = store = opened.store
        self._end: NodeEnd | None = None
        self._machine_stopped = False
        self._moved = Progress()  # made when something changed that others watch, or was applied
        self._identity = MemberIdentity(config, opened, host, self._fail)
        guard = self._identity.guard
        self._links = Links(
            guard.identity,
            host.connections,
            fenced(self._link_changed, self._fail),
            peer_refused=fenced(self._peer_refused, self._fail),
            refused=fenced(guard.refused, self._fail),
        )
        noops = LeaderNoops(config.node_id, host.platform.wall_clock_ms, host.platform.chance)
        self._driver = Driver(
            lambda around: Member(
                member_settings(config),
                opened,
                machine,
                lambda batches, source: member_replica(
                    config, opened, batches, source, host.platform.chance
                ),
                around,
                noops.body,
            ),
            self._links,
            host.timer,
            host.threads,
            self,
            host.platform.run_blocking,
        )
        self._member = member = self._driver.member
        self._replica = member.replica
        self._admission_log = AdmissionLog(
            config.group, config.node_id, self._replica, trio.current_time
        )
        self._leadership = LeadershipWatch(config.group, self._replica)
        self._left_for_room = False  # whether it handed leadership over since its disk is full
        # Checked by calls that wait, wake or change something, which another loop must not make.
        self._home = HomeLoop(lambda: OtherLoop(f"node {config.node_id}"))
        opened.room.on_short = self._room_is_short
        self._orphans: Orphans | None = None  # as last reported
        self._stepping_aside = SteppingAside(
            self._replica, self._identity.has_able_machine, self._driver.transfer_leadership
        )
        self._group_links = GroupLinks(self._replica, self._links)
        self._group_links.follow()
        self._appends = AppendGate(
            config, self._replica, member.pending, member.turn, self._driver.submit, member.room
        )
        assert opened.growth_note is not None
        self._growth = GrowthWatch(opened.growth_note, self._replica, host.platform.run_blocking)
        self._changes = GroupChanges(
            self._replica, self._driver.wake, self._moved, self._growth.before_change
        )
        self.sessions = SessionGate(self, machine) if isinstance(machine, WithSessions) else None
        self.queries = ServedQueries(self, machine)
        self.watches = ServedWatches(self, machine, member.history)
        self._host = host
        port = GroupPort(
            guard.identity,
            self._links,
            self._driver,
            lambda: PushCheck(store),
            ClientServer(self).serve,
            guard.refusal,
        )
        self._identity.connect(self._replica, self._moved, self._links, port)

    # --- appending ----------------------------------------------------------------------------

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        """Append entries without a task; `done` is called once with the outcome.

        The entries lie next to each other in the log. `done(outcome)` gets a list of Appended, or
        an error of the DLedgerError tree that says whether the outcome is certain. It is called
        in this thread, soon after the entries are applied here, and must not raise.

        Raises, if no entry was admitted: NotLeader, LeadershipMoving, LogFull, DiskFull,
        EntryTooLarge, BodyInvalid, MachineStopped, NodeClosing, OtherLoop.
        """
        escaped = bodies if self.sessions is None else self.sessions.escaped(bodies)
        self.submit_envelopes(escaped, done)

    def submit_envelopes(self, bodies: Sequence[Body], done: Done, at_once: bool = False) -> None:
        """Append bodies without escaping them; `at_once`: see Driver. Raises as `submit`."""
        if self._end is not None:
            raise self._end.closing()
        self._home.check()
        if (stopped := self._member.applier.stopped) is not None:
            raise MachineStopped(stopped.index, stopped.problem)
        if not bodies:  # nothing would ever be applied, and `done` never called
            raise BodyInvalid("nothing to append: give at least one body")
        self._appends.submit(bodies, done, at_once)

    async def append(self, body: Body) -> Appended:
        """Append one entry; returns once it is committed and applied here.

        Cancelling gives up the wait, not the append. Raises as `submit`, and LeadershipLost,
        Discarded or NodeClosed for an admitted entry.
        """
        return (await self.append_many((body,)))[0]

    async def append_many(self, bodies: Sequence[Body]) -> list[Appended]:
        """Append entries next to each other; returns once all are committed and applied here.

        Cancelling gives up the wait, not the append. Raises as `append`; AppendCutShort if the
        leader took a part of them, and refused the rest.
        """
        escaped = bodies if self.sessions is None else self.sessions.escaped(bodies)
        return await wait_appended(self.submit_envelopes, escaped)

    def session(
        self, *, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> AbstractAsyncContextManager[Session]:
        """Open a session, whose appends are each applied once. See docs/sessions.md.

        Works on every member. `ttl_s`: the session ends after so many seconds without a command;
        `timeout_s`: how long to try to begin it. Raises NotAppendedInTime, SessionsOff.
        """
        self._check_open()
        self._home.check()
        if self.sessions is None:
            raise SessionsOff
        shared = self._host.connections
        return local_session(
            self, self.sessions, ttl_s, timeout_s, shared.tls, shared.network, shared.shows
        )

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end.closing()

    # --- reading ------------------------------------------------------------------------------

    async def read(self) -> int:
        """Wait until the state machine includes every entry acknowledged before this call.

        A linearizable read: call this, then look at the state machine (ReadIndex, Raft thesis
        6.4). Works on any member: one that does not lead asks the leader. Returns the index that
        the state includes within four election timeouts, or raises ReadUnavailable or NodeClosing.
        On a new member the timeouts run from the moment at which it may begin a group alone. A
        read changes nothing, so trying again is always safe.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._home.check()
        self._check_readable()
        return await wait_read(self._member.reads)

    def read_stale(self, *, max_lag_s: float) -> int:
        """Return the index that the state machine includes, if it is not older than `max_lag_s`.

        The state then includes everything that the leader had committed when it sent some
        heartbeat, and that heartbeat arrived here within the last `max_lag_s` seconds. A heartbeat
        that the network delayed counts from its arrival: `read` has no such gap.

        Raises ReadUnavailable: ask again later, or use `read`.
        """
        self._check_readable()
        lag_s = trio.current_time() - self._replica.fresh_as_of
        is_fresh = lag_s <= max_lag_s  # never, if the limit is not a number
        if not is_fresh or self._member.snapshots.awaited.is_restoring:
            raise ReadUnavailable(too_old(self._member.read_facts(), lag_s, max_lag_s))
        return self._replica.state.applied

    def _check_readable(self) -> None:
        self._check_open()
        if (stopped := self._member.applier.stopped) is not None:
            raise ReadUnavailable(str(stopped))
        if (orphans := self._replica.handler.orphans) is not None:
            raise ReadUnavailable(orphans_text(self.config.node_id, orphans))

    def state_index(self) -> int:
        """Return the last entry that the state machine includes, if callers may look at its state
        now.

        Raises ReadUnavailable, NodeClosing.
        """
        self._check_readable()
        if self._member.snapshots.awaited.is_restoring:
            raise ReadUnavailable(behind(self._member.read_facts()))
        return self._replica.state.applied

    def committed(self, start: int = 0) -> CommittedEntries:
        """Iterate over all committed entries from `start` on (no-ops too), without end."""
        first = max(start, self._store.first_index)
        return CommittedEntries(
            first, lambda index: self.entries(index, _ITERATE_BYTES), self.wait_appliable
        )

    def entries(self, first: int, max_bytes: int) -> list[Entry]:
        """Return committed entries from `first` on, as many as fit into `max_bytes`, and at least
        one if there is one.

        Raises NodeClosing; LogCorrupt or DiskFailed, with which the node then stops.
        """
        self._check_open()
        last = self._replica.appliable
        first = max(first, self._store.first_index)
        if first > last:
            return []
        try:
            return decode_entries(self._store.read(first, last, max_bytes))
        except Fatal as error:
            self._driver.fail(error)
            raise

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        """Return some committed entries from `first` on, as this member's log holds them.

        Waits up to `wait_s` for the entry at `first`; empty if it does not come. Raises OutsideLog
        if the log begins after `first`; as `entries` otherwise.
        """
        with trio.move_on_after(max(wait_s, 0.0)):
            await self.wait_appliable(first)
        begin = self._store.first_index
        if first < begin:
            raise OutsideLog("entry", first, begin, self._replica.appliable)
        return self.entries(first, _ITERATE_BYTES)

    @renamed_arguments(size="size_bytes")
    def read_bytes(self, pos: int, size_bytes: int) -> bytes:
        """Return so many bytes of the log at `pos`, for callers that keep positions of entries.

        Raises NodeClosing.
        """
        self._check_open()
        return self._store.read_bytes(pos, size_bytes)

    def check_at(self, pos: int) -> None:
        """Check the sums of the entry that holds a byte of the log.

        `read_bytes` checks no sums: its callers call this if they cannot decode the bytes.

        Raises OutsideLog, NodeClosing; LogCorrupt or DiskFailed, with which the node then stops.
        """
        self._check_open()
        try:
            self._store.check_at(pos)
        except Fatal as error:
            self._driver.fail(error)
            raise

    @property
    def max_body_bytes(self) -> int:
        """The longest body that this member appends."""
        return self.config.store.max_body_bytes

    @property
    def begin_position(self) -> int:
        """The position of the first byte that the log still has."""
        return self._store.begin_pos

    def segment_begin(self, index: int) -> SegmentBegin:
        """Return the beginning of the segment that holds an entry; only whole segments are ever
        dropped.

        Raises OutsideLog, NodeClosing.
        """
        self._check_open()
        return self._store.segment_begin(index)

    async def wait_applied(self, index: int) -> None:
        """Wait until the state machine has applied `index`. Raises NodeClosing."""
        self._home.check()
        while self._replica.state.applied < index:
            await self._moved.wait()

    async def wait_appliable(self, index: int) -> None:
        """Wait until the entry at `index` is committed and durable here. Raises NodeClosing."""
        self._home.check()
        while self._replica.appliable < index:
            await self._moved.wait()

    async def snapshot(self) -> Snapshot:
        """Write a snapshot of the state machine now; return its path, size and header.

        Appends go on meanwhile. Older snapshots and the log before them are dropped as
        `config.snapshots` says. Raises SnapshotUnavailable (the node serves on), NodeClosing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._home.check()
        return await wait_snapshot(self._member.snapshots.ask)

    # --- leading ------------------------------------------------------------------------------

    async def transfer_leadership(self, target: str | None = None) -> str:
        """Transfer leadership to `target`, or to the member with the longest log.

        Returns the new leader. Appends are rejected meanwhile (LeadershipMoving: try again). After
        one election timeout without success this member goes on as leader. Cancelling gives up the
        wait, not the transfer. This node's own name as `target` only aborts a running transfer.

        Raises NotLeader, NodeClosing, or TransferFailed with the reason.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        self._home.check()
        transfer = self._driver.transfer_leadership(target)
        if transfer is None:
            return self.config.node_id
        return await wait_transferred(self._replica, transfer, self._moved)

    def forget_leader(self) -> None:
        """Forget the leader, because a supervisor (say) knows that its process has ended.

        This member then votes for a candidate at once, not only after it has not heard the leader
        for an election timeout. The next heartbeat of a leader undoes it. No effect on a leader.

        Raises LeaderKept where lease reads are on (`max_clock_drift`).
        """
        self._check_open()
        self._home.check()
        self._replica.forget_leader()
        self._driver.wake()

    # --- the group ----------------------------------------------------------------------------

    @property
    def configuration(self) -> NumberedConfiguration:
        """The newest configuration in this node's log, and the index of its entry (or -1)."""
        membership = self._replica.state.membership
        return NumberedConfiguration(membership.index, membership.configuration)

    async def change(
        self,
        changes: Sequence[Change],
        *,
        expected: int | None = None,
        transition: Transition = Transition.AUTO,
    ) -> NumberedConfiguration:
        """Change the members of the group, on the leader; return the configuration then in force.

        A new voter gets the log as a learner first, and votes when it has it. If more than one
        voter changes, the change goes through a joint configuration. On return a quorum of the
        remaining members knows the change, so removed members may be stopped. `expected`: the index
        of the configuration that the changes are made for. Without changes, this ends a joint phase
        of Transition.JOINT_MANUAL. Cancelling gives up the wait only.

        Raises NotLeader, LeadershipMoving, NodeClosing, ChangeRefused (its subclass says why; after
        LearnerBehind and LearnerStalled the learner stays), Discarded, LeadershipLost (unknown).
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        self._home.check()
        if not changes:
            return await self._changes.leave_joint()
        return await self._changes.carry_out(changes, transition, expected)

    def reconfigure(self, config: NodeConfig) -> None:
        """Change the settings that `config.CHANGEABLE` names.

        Raises ConfigInvalid if any other setting differs, or a value does not fit; then nothing
        changes.
        """
        self._check_open()
        self._home.check()
        check_changeable(self.config, config)
        self._member.snapshots.go_by(config.snapshots)
        self._replica.handover.prefer(config.preferred_leader)
        self._member.housekeeper.scrub_every(config.scrub_period_hours * 3600)
        self.config = config

    # --- looking ------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The term this node is in."""
        return self._replica.state.term

    @property
    def is_ready_leader(self) -> bool:
        """Whether this node leads and has applied an entry of its own term: it may serve."""
        return self._leadership.is_ready_leader

    @property
    def role(self) -> RoleChange:
        """The role of this node, and the leader that it knows."""
        return self._leadership.role

    @property
    def disk_short(self) -> str | None:
        """Why appends are refused for lack of disk room, and what to do; None if they are not."""
        return self._member.room.why_short

    @property
    def machine_version(self) -> int | None:
        """The version of entries that all members read; None if a member has not told its own."""
        return self._identity.oldest_machine_version(self._replica.state.membership.members)

    @property
    def machine_name(self) -> str:
        """The name of the state machine; empty if it has none."""
        return self._identity.guard.identity.of_group.machine.name

    @property
    def tally(self) -> Tally:
        """The counters of this node since it was opened."""
        return self._driver.tally

    def role_changes(self) -> RoleChanges:
        """Iterate over `role`, now and after each change. A slow reader skips to the latest."""
        self._home.check()
        return self._leadership.changes()

    def reload_tls(self) -> None:
        """Read the certificates again, as `Host.reload_tls` does. Raises ConfigInvalid."""
        self._check_open()
        self._home.check()
        self._host.reload_tls()

    def reload_users(self) -> None:
        """Read the file of users again, as `Host.reload_users` does. Raises ConfigInvalid."""
        self._check_open()
        self._home.check()
        self._host.reload_users()

    def status(self) -> Status:
        """Return the status of this node, and of its peers as it sees them."""
        return node_status(
            self.config,
            self._member,
            self._links,
            self._identity,
            self._host,
            self._appends.held(),
            ready=self.is_ready_leader,
        )

    # --- the node's own tasks -----------------------------------------------------------------

    def start(self, nursery: trio.Nursery) -> None:
        """Start the tasks, and accept messages and clients. For the host alone."""
        self._identity.start()
        nursery.start_soon(self._run, nursery.cancel_scope)

    async def _run(self, block: trio.CancelScope) -> None:
        """Run the node's tasks until one fails; then end the block, and every wait outside of it.

        Raises a DLedgerError.
        """
        try:
            async with unwrapping_nursery() as nursery:
                nursery.start_soon(self._driver.run)
                nursery.start_soon(self._identity.run)
                nursery.start_soon(self._growth.run)
                nursery.start_soon(self._stepping_aside.run)
                if self.sessions is not None:
                    nursery.start_soon(self.sessions.run)
        except Exception as error:
            block.cancel()  # first, so that waits inside the block are cancelled and do not raise
            ending = node_ending(error)
            self.stop(ending)
            raise ending from ending.__cause__

    def stop(self, cause: BaseException | None = None) -> None:
        """Accept no more calls and messages, and answer every waiting call. For the host alone.

        `cause`: why the node cannot go on; None where its block ends.
        """
        if self._end is not None:
            return
        self._end = NodeEnd(cause)
        self._home.end()
        self._identity.stop()
        self._driver.close()
        self._links.close()
        self._member.snapshots.close(self._end)
        for waiting in (self._moved, self._leadership):
            waiting.close(self._end)
        self._member.close(self._end)

    async def closed(self, patience_s: float) -> bool:
        """Close the store after a running sync; return whether that took at most `patience_s`.

        For the host alone, after `stop`.
        """
        return await self._driver.closed(self._store.close, patience_s)

    def _fail(self, error: Exception) -> None:
        self._driver.fail(error)

    def _link_changed(self, peer: str, connected: bool) -> None:
        self._driver.link_changed(peer, connected)

    def _peer_refused(self, peer: str) -> None:
        # A peer that holds a channel to this member is alive: its process has not ended.
        if not self._identity.port.is_called_by(peer):
            self._driver.peer_gone(peer)

    # --- observing the member: see Watches ----------------------------------------------------

    def told(self, outcomes: Outcomes) -> None:
        """Note that the role, the leader or the group has changed. For the driver alone."""
        self._moved.made()
        self._group_links.follow()
        self._growth.look()
        self._admission_log.look()
        if self._replica.handler.orphans != self._orphans:
            self._orphans_changed(self._replica.handler.orphans)
        self._leadership.look()
        self._leave_for_room()

    def _room_is_short(self) -> None:
        """Note that the disk has become full. Called in any thread."""
        self._left_for_room = False
        with contextlib.suppress(trio.RunFinishedError):
            self._home.token.run_sync_soon(self._leave_for_room)

    def _leave_for_room(self) -> None:
        """Hand leadership once to a member whose disk may have room. All disks may be full."""
        if (
            self._end is not None
            or self._member.room.why_short is None
            or self._left_for_room
            or self._replica.state.role is not Role.LEADER
        ):
            return
        self._left_for_room = True
        with contextlib.suppress(Rejected):  # no other voter can take over now
            self._driver.transfer_leadership(None)

    def _orphans_changed(self, orphans: Orphans | None) -> None:
        """Tell operators and the other members which committed entries the group lost."""
        self._orphans = orphans
        self._identity.holds_orphans(orphans)
        if orphans is None:
            logger.warning("the group has the entries again that it had lost")
        else:
            logger.error(
                "%s", orphans_text(self.config.node_id, orphans), extra={"event": "orphans"}
            )

    def refused(self, fault: PeerFault) -> None:
        """Note that a message was refused that no correct member sends. For the driver alone."""
        self._host.connections.refusals.add(
            "message", f"a message of {fault.peer}: {fault.problem}; {fault.advice}"
        )

    def applied(self) -> None:
        """Note that the state machine has applied entries, or stopped. For the driver alone."""
        if (self._member.applier.stopped is not None) is not self._machine_stopped:
            self._machine_stops(self._member.applier.stopped)
        self._moved.made()
        self._leadership.look()

    def _machine_stops(self, stopped: MachineTooOld | None) -> None:
        """Tell operators and the other members that the state machine stopped, or goes on."""
        self._machine_stopped = stopped is not None
        self._leadership.may_serve = stopped is None
        self._identity.machine_stops(self._machine_stopped)
        if stopped is None:
            self._stepping_aside.end()
            logger.warning("the state machine goes on with a snapshot of the leader")
            return
        self._stepping_aside.begin()
        logger.error(
            "%s; until then it serves nothing, and does not lead while another member can",
            stopped,
        )
