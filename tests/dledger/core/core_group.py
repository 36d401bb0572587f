"""A group of cores without stores: a test says what is delivered, synced and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dledger.core.admission.standing import Standing, Told
from dledger.core.agenda import ASK, CONFIRM, INSTALL, RECEIVE, REPLICATE, SEND, TELL, WRITE
from dledger.core.entry_handler import Write
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import ChangeOutcome, Membership
from dledger.core.messages import Message
from dledger.core.reads.read_index import ReadLost, ReadReady
from dledger.core.replica import Outgoing, Replica, ReplicaConfig
from dledger.errors import DLedgerError
from dledger.node.turn import Turn
from dledger.store.log_store import SyncWork
from dledger.waits.pending_appends import Outcome
from tests.dledger.core.configurations import configuration
from tests.dledger.core.imagined_log import ImaginedLog, NoSnapshots, imagined_turn

TIMEOUT_S = 0.5
HEARTBEAT_S = 0.1


# The steps that fill the outbox.
FILL = INSTALL | CONFIRM | REPLICATE | ASK


def take(turn: Turn, steps: int, now: float) -> None:
    """Take these steps of a turn, due or not."""
    turn.agenda.due |= steps
    turn.run(now, steps)


class Messages(NamedTuple):
    """What leaves, and the outcomes of reads and of changes of the group."""

    outgoing: Sequence[Outgoing]
    reads_ready: Sequence[ReadReady]
    reads_lost: Sequence[ReadLost]
    changes: Sequence[ChangeOutcome]


def take_messages(replica: Replica, now: float) -> Messages:
    """Fill the outbox of a replica without a turn, and empty it."""
    replica.confirm_reads(now)
    replica.following.answer_snapshots()
    replica.replicate(now)
    replica.ask(now)
    replica.agenda.due &= ~(FILL | SEND)
    return Messages(replica.outbox.take(), *replica.take_outcomes())


class EntriesAtOnce:
    """A BatchSizer: so many entries in one push."""

    def __init__(self, count: int) -> None:
        self.count = count

    def batch_end(self, first: int, last: int) -> int:
        return min(last, first + self.count - 1)

    def batch_weight(self, first: int) -> int:
        return 1


def view_of(terms: Sequence[int]) -> LedgerView:
    """A log whose entries have these terms."""
    runs: list[TermRun] = []
    for index, term in enumerate(terms):
        if not runs or runs[-1].term != term:
            runs.append(TermRun(term, index))
    return LedgerView(runs, last_index=len(terms) - 1)


def terms_of(view: LedgerView) -> list[int]:
    """The term of every entry of a log."""
    return [view.term_at(index) for index in range(view.last_index + 1)]


class Member:
    """One replica and its imagined disk."""

    def __init__(
        self,
        name: str,
        voters: Sequence[str],
        terms: Sequence[int] = (),
        hard_state: HardState | None = None,
        batch: int = 100,
        now: float = 0.0,
        began_with: Configuration | None = None,
        changes: Mapping[int, NumberedConfiguration] | None = None,
        standing: Standing = Standing.PROVEN,
        share: float = 0.5,
        view: LedgerView | None = None,
        told: Told = Told.NOTHING,
    ) -> None:
        last_term = terms[-1] if terms else 0
        self.name = name
        began_with = configuration(voters) if began_with is None else began_with
        membership = Membership(began_with)
        for index, change in sorted((changes or {}).items()):
            membership.appended(index, change)
        replica = Replica(
            ReplicaConfig(name, began_with, TIMEOUT_S, HEARTBEAT_S, told=told),
            view_of(terms) if view is None else view,
            hard_state or HardState(last_term),
            EntriesAtOnce(batch),
            lambda: share,
            now,
            membership,
            standing=standing,
        )
        self.begin(replica, changes or {}, standing)

    def begin(
        self,
        replica: Replica,
        changes: Mapping[int, NumberedConfiguration],
        standing: Standing = Standing.PROVEN,
    ) -> None:
        """Run this replica, over a log with these changes."""
        self.replica = replica
        replica.growth_is_noted = True
        self._log = ImaginedLog(replica, changes, standing)
        self._left: list[Outgoing] = []
        self._begun: list[SyncWork] = []
        self.turn = imagined_turn(
            replica,
            self._log,
            lambda peer, message: self._left.append(Outgoing(peer, message)),
            self._begun.append,
            NoSnapshots(),
        )
        self.decided: list[ChangeOutcome] = []

    @property
    def changes(self) -> Mapping[int, NumberedConfiguration]:
        """Those in its log, by index."""
        return self._log.changes

    @property
    def written(self) -> list[Write]:
        """What the core had written."""
        return self._log.written

    @property
    def role(self) -> Role:
        return self.replica.state.role

    @property
    def term(self) -> int:
        return self.replica.state.term

    @property
    def committed(self) -> int:
        return self.replica.state.committed

    @property
    def log(self) -> list[int]:
        return terms_of(self.replica.view)

    @property
    def record_due(self) -> HardState | None:
        """The record that the next sync takes with it."""
        return self.turn.syncs.hard_state_due

    def take_writes(self) -> None:
        """Carry out what the core wants written; nothing of it is durable yet."""
        take(self.turn, WRITE, 0.0)

    def leaving(self, now: float) -> list[Outgoing]:
        """End a turn: what may leave."""
        take(self.turn, WRITE, now)
        take(self.turn, FILL | SEND, now)
        self.decided += self.replica.take_outcomes().changes
        self.replica.agenda.due &= ~TELL
        left = self._left[:]
        self._left.clear()
        return left

    def begin_sync(self) -> tuple[int, int, HardState | None]:
        """What a sync that begins now will have made durable."""
        work = self._begin()
        return work.index, work.epoch, work.hard_state

    def _begin(self) -> SyncWork:
        self.take_writes()
        self.turn.syncs.start(0.0)
        return self._begun.pop()

    def sync(self, now: float) -> None:
        """A whole sync, begun and ended now."""
        self.turn.sync_ended(self._begin(), None)
        take(self.turn, RECEIVE, now)


class Group:
    """Members n0, n1, ... and the messages between them."""

    def __init__(self, logs: Sequence[Sequence[int]], batch: int = 100) -> None:
        self.names = [f"n{number}" for number in range(len(logs))]
        self.batch = batch
        self.members = {
            name: Member(name, self.names, terms, batch=batch)
            for name, terms in zip(self.names, logs, strict=True)
        }
        self.now = 0.0
        self.silent: set[str] = set()  # nothing to or from these arrives
        self.sent: list[tuple[str, str, Message]] = []

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def join(self, name: str) -> Member:
        """A member with an empty log, that knows nobody."""
        self.names.append(name)
        member = Member(name, [], batch=self.batch, now=self.now, began_with=Configuration())
        self.members[name] = member
        return member

    def restart(self, name: str) -> Member:
        """A member that forgot all but term, vote, log and changes, and what a sync covered."""
        before = self[name]
        state = before.replica.state
        began_with = before.replica.config.began_with
        hard_state = HardState(state.term, state.voted_for)
        self.members[name] = Member(
            name, [], before.log, hard_state, self.batch, self.now, began_with, before.changes
        )
        return self[name]

    def run(
        self,
        until: Callable[[], bool] = lambda: False,
        dropped: Callable[[str, str, Message], bool] = lambda sender, receiver, message: False,
        rounds: int = 200,
    ) -> None:
        """Sync and deliver at once, until nothing moves any more."""
        for _ in range(rounds):
            moving = False
            for name, member in self.members.items():
                if name in self.silent:
                    continue
                before = (member.role, member.term, member.replica.state.durable)
                member.sync(self.now)
                moving |= before != (member.role, member.term, member.replica.state.durable)
                for receiver, message in member.leaving(self.now):
                    moving = True
                    self.sent.append((name, receiver, message))
                    if receiver not in self.silent and not dropped(name, receiver, message):
                        self[receiver].replica.receive(name, message, self.now)
                if until():
                    return
            if not moving:
                return
        raise AssertionError(f"still moving after {rounds} rounds")

    def stand(self, name: str) -> None:
        """Let every lease run out and one member's timer fire; nothing is delivered yet."""
        self.now += 2 * TIMEOUT_S + 0.001
        self[name].replica.tick(self.now)

    def elect(self, name: str) -> Member:
        """Make a member leader, and let its log reach everybody who is not silent."""
        self.stand(name)
        self.run()
        assert self[name].role is Role.LEADER, self[name].role
        return self[name]

    def pass_time(self, for_s: float) -> None:
        """Let time pass in small steps, everything being delivered."""
        end = self.now + for_s
        while self.now < end:
            self.now += HEARTBEAT_S / 4
            for name, member in self.members.items():
                if name not in self.silent:
                    member.replica.tick(self.now)
            self.run()

    def pause(self, *names: str, for_s: float) -> None:
        """Let time pass in which these members, on time so far, do nothing; they go on then."""
        for name in names:
            self.members[name].replica.patience._looked_at = self.now
        self.now += for_s
        for name in names:
            self.members[name].replica.patience.look(self.now)

    def wipe(
        self,
        name: str,
        standing: Standing = Standing.FRESH,
        share: float = 0.25,
        began_with: Configuration | None = None,
        told: Told = Told.NOTHING,
    ) -> Member:
        """A member comes back with an empty folder. `share`: what it draws at random."""
        member = Member(
            name,
            self.names,
            batch=self.batch,
            now=self.now,
            began_with=began_with,
            standing=standing,
            share=share,
            told=told,
        )
        self.members[name] = member
        return member

    def propose(self, name: str, count: int) -> int:
        """Entries at the leader; the index of the last one. Nothing is sent yet."""
        member = self[name]
        member.take_writes()

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, DLedgerError):
                raise outcome

        member.turn.submit([b""] * count, 0, done)
        member.turn.propose(self.now)
        return member.replica.view.last_index
