"""A group of cores in virtual time: links and disks take as long as a test says."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import count
from random import Random

from dledger.core.admission.standing import Standing, Told
from dledger.core.agenda import RECEIVE
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.membership import Membership
from dledger.core.messages import Message, Phase, PushRequest
from dledger.core.replica import Replica, ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import EntriesAtOnce, Member, take, view_of
from tests.dledger.core.imagined_log import ImaginedSync

# More than any test appends at once: what a turn gathers leaves in one push.
BATCH_ENTRIES = 100_000


class TimedGroup:
    """Members whose messages and syncs take time.

    Attributes:
        now: seconds of virtual time, the same clock for all members.
        one_way_s: how long a message takes, from one member to another.
        sync_s: how long a sync takes, of one member.
        cut: pairs of sender and receiver between which messages are lost.
        pushes: how many left, by phase.
    """

    def __init__(
        self,
        names: Sequence[str],
        one_way_s: Callable[[str, str], float],
        sync_s: Callable[[str], float],
        *,
        election_timeout_s: float = 0.5,
        max_clock_drift: float | None = None,
        seed: int = 0,
        standing: Standing = Standing.PROVEN,
        term: int = 0,
        told: Told = Told.NOTHING,
    ) -> None:
        self.now = 0.0
        self.one_way_s = one_way_s
        self.sync_s = sync_s
        self.cut: set[tuple[str, str]] = set()
        self.pushes: Counter[Phase] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._wake_at = dict.fromkeys(names, float("inf"))
        self._syncing: set[str] = set()
        self._arrived_at: dict[tuple[str, str], float] = {}
        self._in_flight: tuple[str, int] | None = None
        self.members: dict[str, Member] = {}
        chance = Random(seed)
        for name in names:
            member = Member(name, names)
            config = ReplicaConfig(
                name,
                configuration(names),
                election_timeout_s,
                max_clock_drift=max_clock_drift,
                told=told,
            )
            replica = Replica(
                config,
                view_of([]),
                HardState(term),
                EntriesAtOnce(BATCH_ENTRIES),
                chance.random,
                0.0,
                Membership(configuration(names)),
                standing=standing,
            )
            member.begin(replica, {}, standing)
            self.members[name] = member
        for name in names:
            self.turn(name)

    @property
    def leader(self) -> Member | None:
        """The leader of the newest term in which an entry is committed; None without."""
        leading = [
            member
            for member in self.members.values()
            if member.role is Role.LEADER and member.replica.commits_in_own_term
        ]
        return max(leading, key=lambda member: member.term, default=None)

    def keep_in_flight(self, name: str, entries: int) -> None:
        """Clients of that leader append another entry for each one that is committed."""
        self._in_flight = (name, entries)
        self.turn(name)

    def separate(self, some: Collection[str]) -> None:
        """Cut these off from the others, both ways."""
        others = self.members.keys() - set(some)
        for one in some:
            self.cut |= {pair for other in others for pair in ((one, other), (other, one))}

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        """Let time pass until something holds; fails after `limit_s` seconds."""
        end = self.now + limit_s
        while not until():
            assert self._events[0][0] <= end, f"not within {limit_s} s"
            self._next()

    def run_for(self, for_s: float) -> None:
        """Let so much time pass."""
        end = self.now + for_s
        while self._events[0][0] <= end:
            self._next()
        self.now = end

    def propose(self, name: str, entries: int) -> None:
        """Have the leader append so many, and send what it may. Raises NotLeader."""
        member = self.members[name]
        member.take_writes()
        member.replica.propose(entries)
        self.turn(name)

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Do something then."""
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def turn(self, name: str) -> None:
        """One turn of a member."""
        member = self.members[name]
        member.replica.tick(self.now)
        for receiver, message in member.leaving(self.now):
            if isinstance(message, PushRequest):
                self.pushes[message.phase] += 1
            self._send(name, receiver, message)
        if name not in self._syncing and member.turn.syncs.is_due(self.now):
            self._syncing.add(name)
            index, epoch, promise = member.begin_sync()

            def ended() -> None:
                self._syncing.discard(name)
                member.turn.sync_ended(ImaginedSync(index, epoch, promise), None)
                take(member.turn, RECEIVE, self.now)
                self.turn(name)

            self.at(self.now + self.sync_s(name), ended)
        if self._in_flight is not None and self._in_flight[0] == name:
            self._refill(member, self._in_flight[1])
        self._wake(name)

    def _refill(self, member: Member, entries: int) -> None:
        missing = entries - (member.replica.view.last_index - member.committed)
        if missing > 0 and member.role is Role.LEADER:
            self.propose(member.name, missing)

    def _send(self, sender: str, receiver: str, message: Message) -> None:
        if (sender, receiver) in self.cut:
            return

        def arrives() -> None:
            if (sender, receiver) not in self.cut:
                self.members[receiver].replica.receive(sender, message, self.now)
                self.turn(receiver)

        # As over one connection: nothing overtakes what left before.
        arrival = self.now + self.one_way_s(sender, receiver)
        arrival = max(arrival, self._arrived_at.get((sender, receiver), 0.0))
        self._arrived_at[sender, receiver] = arrival
        self.at(arrival, arrives)

    def _wake(self, name: str) -> None:
        due = max(self.now, self.members[name].replica.next_deadline())
        if due == self._wake_at[name]:
            return
        self._wake_at[name] = due

        def alarm() -> None:
            if self._wake_at[name] == self.now:
                self._wake_at[name] = float("inf")
                self.turn(name)

        self.at(due, alarm)

    def _next(self) -> None:
        self.now, _, act = heapq.heappop(self._events)
        act()
