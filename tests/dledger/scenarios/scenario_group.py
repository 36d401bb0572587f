"""The group that scenarios are played on: cores, their imagined disks, one network, one clock.

Nothing happens by itself. A member that got an input (a message, a tick, the end of a sync, a call)
ends its turn at once: its writes are carried out, and what may leave is on its way. Times are in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dledger.core.admission.standing import Standing, Told
from dledger.core.agenda import INSTALL, RECEIVE, SEND, WRITE
from dledger.core.entry_handler import Restart
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.core.messages import Message
from dledger.core.replica import Replica, ReplicaConfig
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import FILL, EntriesAtOnce, take
from tests.dledger.core.imagined_log import ImaginedLog, imagined_turn
from tests.dledger.core.raft_promises import Promises
from tests.dledger.scenarios.scenario_member import (
    SNAPSHOT_BYTES,
    Image,
    Impossible,
    ScenarioMember,
    Settings,
    Sync,
)
from tests.dledger.scenarios.scenario_messages import Pattern, Sent
from tests.dledger.scenarios.scenario_snapshots import ScenarioSnapshots

# A group that still moves after so many rounds of syncs and messages will move for ever.
MAX_ROUNDS = 300

# `run` lets time pass in steps of this size.
STEP_MS = 25


class Proposal(NamedTuple):
    """Entries that a leader took."""

    first: int
    last: int
    term: int


@dataclass
class Read:
    """A read, and how it ended: the index it may be served from, or that it is lost."""

    member: str
    committed_before: int
    index: int | None = None
    lost: bool = False


class ScenarioGroup:
    """All of it. Raises Impossible, the product's errors, and PromiseBroken after any step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.flight: list[Sent] = []
        self.sent: list[Sent] = []  # everything that ever left
        self.cuts: set[tuple[str, str]] = set()
        self.holds: list[Pattern] = []
        self.saved: dict[tuple[int, int, int], NumberedConfiguration] = {}  # what snapshots tell
        self.proposals: dict[str, Proposal] = {}
        self.reads: dict[str, Read] = {}
        self.members: dict[str, ScenarioMember] = {}
        began_with = configuration(settings.names, learners=settings.learners)
        self.promises = Promises(self)
        for name in [*settings.names, *settings.learners]:
            terms = tuple(settings.logs.get(name, ()))
            record = settings.records.get(name, HardState(terms[-1] if terms else 0))
            self._add(name, began_with, record, Image(-1, -1, terms))

    def join(self, name: str) -> None:
        """Somebody who knows nobody, and waits to be added to the group."""
        if name in self.members:
            raise Impossible(f"there is a member {name} already")
        self._add(name, Configuration(), HardState(), Image(-1, -1, ()))

    def _add(self, name: str, began_with: Configuration, record: HardState, image: Image) -> None:
        patience = self.settings.patience_of(name, len(self.members))
        member = ScenarioMember(name, began_with, patience, record, image)
        self.members[name] = member
        self._start(member)

    @property
    def now(self) -> float:
        """Seconds, for the core."""
        return self.now_ms / 1000

    @property
    def running(self) -> list[ScenarioMember]:
        """The members that are up."""
        return [member for member in self.members.values() if member.core is not None]

    def member(self, name: str) -> ScenarioMember:
        """A member by its name. Raises Impossible."""
        if name not in self.members:
            raise Impossible(f"there is no member {name}")
        return self.members[name]

    # --- a member's turn ----------------------------------------------------------------------

    def turn(self, member: ScenarioMember) -> None:
        """Carry out its writes, and put on its way what may leave."""
        turn = member.steps
        member.seen_at = self.now
        take(turn, RECEIVE | INSTALL, self.now)
        self._write(member)
        take(turn, FILL | SEND, self.now)
        ready, lost, _ = member.up.take_outcomes()
        reads = list(self.reads.values())
        for read in ready:
            reads[read.ticket].index = read.index
            self.promises.served(reads[read.ticket])
        for each in lost:
            reads[each.ticket].lost = True
        member.noted |= member.up.has_grown
        self.promises.check(member)

    def _leaves(self, member: ScenarioMember, receiver: str, message: Message) -> None:
        sent = Sent(member.name, receiver, message)
        self.promises.leaves(member, sent)
        self.sent.append(sent)
        if (member.name, receiver) not in self.cuts:
            self.flight.append(sent)

    @staticmethod
    def _write(member: ScenarioMember) -> None:
        turn, log = member.steps, member.log
        assert log is not None
        before = len(log.written)
        take(turn, WRITE, 0.0)
        if any(isinstance(write, Restart) for write in log.written[before:]):
            member.image = member.written  # a new beginning is durable when it is written
        member.standing = log.standing
        member.record_written = turn.syncs.hard_state_due or member.record_written

    def _start(self, member: ScenarioMember) -> None:
        settings = self.settings
        changes = dict(member.image.changes)
        membership, record = Membership(member.began_with), member.record
        if (snapshot := member.shelf.newest()) is not None:
            # It is of committed entries, and tells the configuration that was in force.
            group = self.saved[snapshot.identity]
            membership = Membership(group.configuration, group.index)
            record = record._replace(committed=max(record.committed, snapshot.index))
            member.to_restore = snapshot
        for index, change in sorted(changes.items()):
            if index > membership.index:
                membership.appended(index, change)
        member.restarts += 1
        member.core = Replica(
            ReplicaConfig(
                member.name,
                member.began_with,
                settings.timeout_ms / 1000,
                settings.heartbeat_ms / 1000,
                settings.drift,
                settings.preferred,
                told=Told.GROWN if member.noted else Told.NOTHING,
            ),
            member.image.view(),
            record,
            EntriesAtOnce(settings.batch),
            member.share,
            self.now,
            membership,
            member.shelf,
            member.standing,
        )
        member.core.growth_is_noted = True  # see ScenarioMember.noted
        member.log = ImaginedLog(member.core, changes, member.standing)
        member.turn = imagined_turn(
            member.core,
            member.log,
            lambda receiver, message: self._leaves(member, receiver, message),
            lambda work: member.syncs.append(Sync(member.written, work)),
            ScenarioSnapshots(member, self.saved),
        )

    # --- disks --------------------------------------------------------------------------------

    def begin_sync(self, member: ScenarioMember) -> None:
        """Begin to save what is written now."""
        self._write(member)
        member.steps.syncs.start(self.now)

    def end_sync(self, member: ScenarioMember) -> None:
        """The oldest sync that began is over."""
        turn = member.steps
        if not member.syncs:
            raise Impossible(f"no sync of {member.name} has begun")
        image, work = member.syncs.popleft()
        member.image = image
        member.record = work.hard_state or member.record
        turn.sync_ended(work, None)
        self.turn(member)

    def sync(self, member: ScenarioMember) -> None:
        """End every sync that has begun, and make one more, from beginning to end."""
        while member.syncs:
            self.end_sync(member)
        self.begin_sync(member)
        self.end_sync(member)

    def note(self, member: ScenarioMember) -> None:
        """Write the record again, durably, with the commit index: a node does so now and then."""
        state = member.up.state
        committed = min(state.committed, state.durable)
        member.record = member.record._replace(committed=committed)
        member.record_written = member.record_written._replace(committed=committed)

    def stop(self, member: ScenarioMember, *, written_survives: bool, noticed: bool = True) -> None:
        """The end of a process; without `written_survives`, of its machine's power. Its connections
        break, and the others are told, unless the network has no connections.
        """
        _ = member.up
        if written_survives:
            member.image = member.written
            member.record = member.record_written
        member.record_written = member.record
        member.syncs.clear()
        member.arrived = member.to_restore = None
        member.core = member.log = member.turn = None
        for read in self.reads.values():
            if read.member == member.name and read.index is None:
                read.lost = True
        for other in self.running if noticed else ():
            self.call(other, lambda core: core.unreachable(member.name, self.now))

    def restart(self, member: ScenarioMember, *, noticed: bool = True) -> None:
        """Start again with what the disk holds."""
        if member.core is not None:
            raise Impossible(f"{member.name} is running")
        self._start(member)
        self.turn(member)
        for other in self.running if noticed else ():
            self.call(other, lambda core: core.reachable(member.name, self.now))

    def lose(self, member: ScenarioMember, last_index: int) -> None:
        """The disk of a member that is down lost entries that it had synced: it lied."""
        if member.core is not None:
            raise Impossible(f"{member.name} is running")
        image = member.image
        if last_index >= image.last_index:
            raise Impossible(f"the disk of {member.name} ends at {image.last_index}")
        kept = image.terms[: max(last_index - image.before_begin, 0)]
        changes = tuple(one for one in image.changes if one[0] <= last_index)
        member.image = image._replace(terms=kept, changes=changes)
        # Recovery refuses a log that lacks what its record calls committed.
        member.record = member.record._replace(committed=-1)

    def wipe(self, member: ScenarioMember) -> None:
        """The folder of a member that is down is emptied."""
        if member.core is not None:
            raise Impossible(f"{member.name} is running")
        member.image = Image(-1, -1, ())
        member.record = member.record_written = HardState()
        member.standing = Standing.FRESH
        member.shelf.offers.clear()
        member.parts.clear()

    def discard(self, member: ScenarioMember, first_index: int) -> None:
        """Drop the head of a log, durably."""
        member.up.view.discard_before(first_index)
        member.image = member.written
        self.turn(member)

    def apply(self, member: ScenarioMember) -> None:
        """Let the state machine take everything that it may."""
        core, snapshot = member.up, member.to_restore
        if snapshot is None or core.appliable >= snapshot.index:
            member.to_restore = None
            core.applied_to(max(core.appliable, core.state.applied))
        self.turn(member)

    def snapshot(self, member: ScenarioMember, begin: int | None) -> None:
        """Save the state as it is applied; whoever takes it begins its log at entry `begin`."""
        view, index = member.up.view, member.up.state.applied
        begin = index if begin is None else begin
        if not view.before_begin < begin <= index:
            raise Impossible(f"a snapshot of entry {index} whose log begins at {begin}")
        term, before = view.term_at(index), begin - 1
        log = LogBegin(before, view.term_at(before), before, before)
        offer = SnapshotOffer(index, term, 1000 * term + index, SNAPSHOT_BYTES, log)
        self.saved[offer.identity] = member.up.state.membership.at(index)
        member.shelf.offers.append(offer)
        self.turn(member)

    # --- time ---------------------------------------------------------------------------------

    def tick(self, members: Iterable[ScenarioMember]) -> None:
        """These members look at the clock."""
        for member in members:
            member.up.tick(self.now)
            self.turn(member)

    def time_out(self, member: ScenarioMember) -> None:
        """Time passes until this member's election timer fires; only it looks at the clock."""
        deadline_ms = -int(-member.up.elector.deadline * 1000 // 1)
        self.now_ms = max(self.now_ms, deadline_ms)
        self.tick([member])

    def run(self, for_ms: int) -> None:
        """Let time pass, and all that is possible happen meanwhile."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + STEP_MS)
            self.tick(self.running)
            self.settle(self.running)

    # --- the network --------------------------------------------------------------------------

    def matching(self, pattern: Pattern) -> list[Sent]:
        """The messages on their way that a pattern means. Raises Impossible if there is none."""
        found = [sent for sent in self.flight if pattern.matches(sent)]
        if pattern.which == "first":
            found = found[:1]
        elif pattern.which == "last":
            found = found[-1:]
        if not found:
            there = [f"{sent.text} {sent.sender} > {sent.receiver}" for sent in self.flight]
            raise Impossible(f"no such message is on its way, only: {', '.join(there) or 'none'}")
        return found

    def take(self, messages: Sequence[Sent]) -> None:
        """These are not on their way any more."""
        gone = {id(sent) for sent in messages}
        self.flight = [sent for sent in self.flight if id(sent) not in gone]

    def deliver(self, messages: Sequence[Sent]) -> None:
        """These arrive; what is sent to a member that is down is lost."""
        self.take(messages)
        for sent in messages:
            member = self.members.get(sent.receiver)
            if member is not None and member.core is not None:
                member.steps.received(sent.sender, [sent.message])
                self.turn(member)

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """What these send to one another is lost from now on, and what is on its way too."""
        self.cuts |= set(pairs)
        self.flight = [s for s in self.flight if (s.sender, s.receiver) not in self.cuts]

    def settle(self, members: Sequence[ScenarioMember]) -> None:
        """Sync, deliver and apply among these members until nothing moves any more."""
        for member in members:
            self.turn(member)
        names = {member.name for member in members}
        for _ in range(MAX_ROUNDS):
            moving = False
            for member in members:
                if member.has_work:
                    self.sync(member)
                    moving = True
                if self._can_apply(member):
                    self.apply(member)
                    moving = True
            arriving = [sent for sent in self.flight if self._free(sent, names)]
            self.deliver(arriving)
            if not moving and not arriving:
                return
        raise Impossible(f"still moving after {MAX_ROUNDS} rounds")

    @staticmethod
    def _can_apply(member: ScenarioMember) -> bool:
        core, snapshot = member.up, member.to_restore
        reached = snapshot is None or core.appliable >= snapshot.index
        return reached and core.appliable > core.state.applied

    def _free(self, sent: Sent, names: set[str]) -> bool:
        held = any(pattern.matches(sent) for pattern in self.holds)
        receiver = self.members.get(sent.receiver)
        down = receiver is None or receiver.core is None
        return sent.sender in names and (sent.receiver in names or down) and not held

    # --- what clients and operators ask ---------------------------------------------------------

    def propose(self, member: ScenarioMember, count: int, name: str | None) -> None:
        """Entries for a leader. Raises NotLeader or LeadershipMoving."""
        self._write(member)
        first, term = member.up.propose(count)
        if name is not None:
            self.proposals[name] = Proposal(first, first + count - 1, term)
        self.turn(member)

    def change(
        self, member: ScenarioMember, append: Callable[[Replica], int], name: str | None
    ) -> None:
        """A change of the group, or the end of one, for a leader. Raises as Replica does."""
        self._write(member)
        index = append(member.up)
        if name is not None:
            self.proposals[name] = Proposal(index, index, member.up.state.term)
        self.turn(member)

    def outcome(self, proposal: Proposal) -> str:
        """`committed`, `lost` or `open`, by what is committed anywhere."""
        known = self.promises.committed
        indexes = range(proposal.first, proposal.last + 1)
        terms = {known[index] for index in indexes if index < len(known)}
        # Terms never decrease along a log: nothing older follows what is committed.
        if terms - {proposal.term} or (known and known[-1] > proposal.term > 0 and not terms):
            return "lost"
        return "committed" if proposal.last < len(known) else "open"

    def read(self, member: ScenarioMember, name: str) -> None:
        """A linearizable read."""
        core = member.up
        ticket = len(self.reads)
        self.reads[name] = Read(member.name, len(self.promises.committed) - 1)
        core.request_read(ticket)
        self.turn(member)

    def call(self, member: ScenarioMember, act: Callable[[Replica], object]) -> None:
        """Any other call of the core, as a turn of its own."""
        act(member.up)
        self.turn(member)
