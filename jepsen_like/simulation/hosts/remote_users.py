"""Programs on machines of their own: they use a group over the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import trio

from dledger.client.known_members import KnownMembers
from dledger.client.remote_log import RemoteLog, open_log
from dledger.errors import DLedgerError, OutcomeUnknown, OutsideLog, Rejected
from dledger.sessions.session import Session
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.plan import GroupPlan
from jepsen_like.simulation.hosts.state_reader import StateReader
from jepsen_like.simulation.hosts.virtual_internet import MachineNetwork

# How long each call tries.
TIMEOUT_S = 5.0
# How much longer a call may take: its last attempt is not always cut short at the limit.
MARGIN_S = 5.0
MOST_AT_ONCE = 20
TAIL_S = 2.0
SESSION_TTL_S = 10.0


class RemoteUser:
    """One program, which uses one group.

    Once `stopped`, it makes one more append, which has to succeed, and ends; it `lacks` that append
    until then.
    """

    def __init__(
        self, around: Around, number: int, group: GroupPlan, peers: dict[str, str]
    ) -> None:
        self.name = f"c{number}"
        self.endpoint = around.internet.add(self.name)
        self.stopped = False
        self.lacks = True
        self._around = around
        self._group = group
        self._book = around.books[group.name]
        self._peers = peers
        self._chance = Chance(around.plan.seed, f"client {self.name}")
        self._numbers = count()
        self._uses: Sequence[Callable[[RemoteLog], Awaitable[None]]] = (
            self._append,
            self._append,
            self._append_many,
            self._many_at_once,
            self._tail,
            self._read,
            self._status,
        )

    async def run(self) -> None:
        """Make one call after the other, until `stopped`."""
        network = MachineNetwork(self._around.internet, self.endpoint, lambda: True)
        members = KnownMembers(self._group.name, self._peers)
        async with (
            open_log(members, None, TIMEOUT_S, network) as log,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._sessions, log)
            reader = StateReader(
                *(self._around, self.name, self._group.name),
                *([*self._peers], log, lambda: self.stopped),
            )
            nursery.start_soon(reader.run)
            while not self.stopped:
                await trio.sleep(self._chance.wait_s(self._around.plan.pause_s))
                await self._use(log, self._chance.choice(self._uses))
            while self.lacks:
                await self._use(log, self._append_at_last)

    async def _use(self, log: RemoteLog, use: Callable[[RemoteLog], Awaitable[None]]) -> None:
        what = f"{use.__name__.removeprefix('_')} of {self.name} on {self._group.name}"
        began_at = trio.current_time()
        try:
            with self._around.calls.waits(what):
                await use(log)
        except DLedgerError as error:
            self._around.journal.count(f"errors: {type(error).__name__}")
        took_s = trio.current_time() - began_at
        if took_s > TIMEOUT_S + MARGIN_S:
            self._around.broken("calls keep to their time limit", f"{what}: {took_s:.1f} s")

    # --- appending --------------------------------------------------------------------------------

    def _bodies(self, number: int) -> list[bytes]:
        group, name = self._group.name, self.name
        return [f"{group} {name} {next(self._numbers)}".encode() for _ in range(number)]

    async def _append(self, log: RemoteLog) -> None:
        await self._append_bodies(log, self._bodies(1))

    async def _append_at_last(self, log: RemoteLog) -> None:
        await self._append_bodies(log, self._bodies(1))
        self.lacks = False

    async def _append_many(self, log: RemoteLog) -> None:
        await self._append_bodies(log, self._bodies(self._chance.randint(2, MOST_AT_ONCE)))

    async def _many_at_once(self, log: RemoteLog) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(self._chance.randint(2, MOST_AT_ONCE)):
                nursery.start_soon(self._try_to_append, log, self._bodies(1))

    async def _try_to_append(self, log: RemoteLog, bodies: list[bytes]) -> None:
        try:
            await self._append_bodies(log, bodies)
        except DLedgerError as error:
            self._around.journal.count(f"errors: {type(error).__name__}")

    async def _append_bodies(self, log: RemoteLog, bodies: list[bytes]) -> None:
        try:
            appended = await log.append_many(bodies)
        except Rejected as error:
            for body in bodies:
                self._book.refuse(body, error)
            raise
        self._around.journal.count("acknowledged to clients")
        for body, each in zip(bodies, appended, strict=True):
            self._book.acknowledge(body, each.index)

    async def _sessions(self, log: RemoteLog) -> None:
        while not self.stopped:
            try:
                with self._around.calls.waits(f"session of {self.name}"):
                    async with log.session(ttl_s=SESSION_TTL_S, timeout_s=TIMEOUT_S) as session:
                        for _ in range(self._chance.randint(1, 30)):
                            await trio.sleep(self._chance.wait_s(self._around.plan.pause_s))
                            if self.stopped:
                                break
                            await self._append_in(session)
            except DLedgerError as error:
                self._around.journal.count(f"errors: {type(error).__name__}")

    async def _append_in(self, session: Session) -> None:
        bodies = self._bodies(self._chance.choice((1, 1, 5)))
        try:
            appended = await session.append_many(bodies, timeout_s=TIMEOUT_S)
        except OutcomeUnknown:
            raise
        except Rejected as error:
            for body in bodies:
                self._book.refuse(body, error)
            raise
        for body, each in zip(bodies, appended, strict=True):
            self._book.acknowledge(body, each.index)
            self._around.journal.count("appends in sessions of clients")
            if each.repeated:
                self._around.journal.count("appends in sessions found done")

    # --- reading ----------------------------------------------------------------------------------

    async def _tail(self, log: RemoteLog) -> None:
        first = expected = max(0, self._book.newest - 30)
        with trio.move_on_after(self._chance.uniform(0.1, TAIL_S)):
            try:
                async for entry in log.tail(first):
                    if entry.index != expected:
                        self._around.broken(
                            "followers see every entry",
                            f"{self.name}: {entry.index}, not {expected}",
                        )
                    expected += 1
                    self._book.saw(self.name, entry.index, entry.term, entry.magic, entry.body)
            except OutsideLog:
                return
        self._around.journal.coverage.count("entries that clients followed", expected - first)

    async def _read(self, log: RemoteLog) -> None:
        index = self._book.newest
        if index >= 0:
            entry = await log.read(index)
            self._book.saw(self.name, entry.index, entry.term, entry.magic, entry.body)

    async def _status(self, log: RemoteLog) -> None:
        await log.status()
