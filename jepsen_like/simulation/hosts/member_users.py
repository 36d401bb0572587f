"""Applications inside the processes: they call the nodes that run beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

import trio

from dledger.errors import Discarded, DLedgerError, Rejected
from dledger.sessions.session_errors import SessionOutcomeUnknown
from dledger.waits.pending_appends import Outcome
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.seat import Running, Seat
from jepsen_like.simulation.hosts.virtual_host import VirtualHost

Use = Callable[[Seat, Running], Awaitable[None]]

# Calls in flight at once by one application.
MOST_AT_ONCE = 40
# How often a chain of appends goes on.
CHAIN_GOES_ON = 0.5
# How long a task follows the log or the roles, in seconds.
FOLLOWS_S = 3.0
SESSION_TIMEOUT_S = 4.0


class MemberUsers:
    """Begins calls on nodes chosen by chance."""

    def __init__(self, around: Around, hosts: Sequence[VirtualHost]) -> None:
        self._around = around
        self._hosts = hosts
        self._chance = Chance(around.plan.seed, "applications")
        self._chance_of_chains = Chance(around.plan.seed, "chains of appends")
        self._numbers = count()
        self.stopped = False
        self.chains = False  # whether answers submit further appends
        self._uses: Sequence[Use] = (
            self._append,
            self._append,
            self._append_many,
            self._submit_many,
            self._read,
            self._read,
            self._read_stale,
            self._follow,
            self._watch_roles,
            self._wait_applied,
            self._snapshot,
            self._transfer,
            self._session,
            self._look,
        )

    async def run(self) -> None:
        while not self.stopped:
            await trio.sleep(self._chance.wait_s(self._around.plan.pause_s))
            host = self._chance.choice(self._hosts)
            seats = [seat for seat in host.seats if not seat.group.is_idle]
            if seats:
                self.begin(host, self._chance.choice(seats), self._chance.choice(self._uses))

    def use_once_more(self, host: VirtualHost, seat: Seat) -> None:
        """Make calls of every kind at once, as when a member is closed under load."""
        if not self.stopped and not seat.group.is_idle:
            for use in self._uses:
                self.begin(host, seat, use)

    def begin(self, host: VirtualHost, seat: Seat, use: Use) -> None:
        running = seat.running
        if running is not None:
            host.use(partial(self._use, use, seat, running))

    async def _use(self, use: Use, seat: Seat, running: Running) -> None:
        what = f"{use.__name__.removeprefix('_')} on {seat.group.name}/{seat.member}"
        try:
            # A session goes to the leader on any host, and has a time limit of its own.
            on = None if use == self._session else running.node
            with self._around.calls.waits(what, on):
                await use(seat, running)
        except DLedgerError as error:
            self._around.journal.count(f"errors: {type(error).__name__}")

    # --- appending --------------------------------------------------------------------------------

    def _bodies(self, seat: Seat, number: int) -> list[bytes]:
        return [
            f"{seat.group.name} {seat.member} {next(self._numbers)}".encode() for _ in range(number)
        ]

    async def _append(self, seat: Seat, running: Running) -> None:
        (body,) = self._bodies(seat, 1)
        try:
            appended = await running.node.append(body)
        except (Rejected, Discarded) as error:
            self._refused(seat, running, [body], error)
            raise
        self._acknowledged(seat, running, [body], [appended.index])

    async def _append_many(self, seat: Seat, running: Running) -> None:
        bodies = self._bodies(seat, self._chance.randint(2, MOST_AT_ONCE))
        try:
            appended = await running.node.append_many(bodies)
        except (Rejected, Discarded) as error:
            self._refused(seat, running, bodies, error)
            raise
        self._acknowledged(seat, running, bodies, [each.index for each in appended])

    async def _submit_many(self, seat: Seat, running: Running) -> None:
        for body in self._bodies(seat, self._chance.randint(2, MOST_AT_ONCE)):
            running.node.submit([body], partial(self._done, seat, running, body))

    def _done(self, seat: Seat, running: Running, body: bytes, outcome: Outcome) -> None:
        if isinstance(outcome, list):
            self._acknowledged(seat, running, [body], [outcome[0].index])
            if self.chains and not self.stopped and running.process.life.is_alive:
                self._submit_next(seat, running)
        elif isinstance(outcome, Rejected | Discarded):
            self._refused(seat, running, [body], outcome)

    def _submit_next(self, seat: Seat, running: Running) -> None:
        """Submit within the turn that answers the last append, as a machine's own users do."""
        if self._chance_of_chains.happens(CHAIN_GOES_ON):
            (body,) = self._bodies(seat, 1)
            with suppress(DLedgerError):
                running.node.submit([body], partial(self._done, seat, running, body))

    def _acknowledged(
        self, seat: Seat, running: Running, bodies: Sequence[bytes], indexes: Sequence[int]
    ) -> None:
        if not running.process.life.is_alive:
            return  # an answer to an ended process reaches no client
        self._around.journal.coverage.count("acknowledged by members", len(bodies))
        for body, index in zip(bodies, indexes, strict=True):
            self._around.books[seat.group.name].acknowledge(body, index)

    def _refused(
        self, seat: Seat, running: Running, bodies: Sequence[bytes], error: DLedgerError
    ) -> None:
        if running.process.life.is_alive:
            for body in bodies:
                self._around.books[seat.group.name].refuse(body, error)

    async def _session(self, seat: Seat, running: Running) -> None:
        async with running.node.session(ttl_s=5.0, timeout_s=SESSION_TIMEOUT_S) as session:
            for body in self._bodies(seat, 3):
                try:
                    appended = await session.append(body, timeout_s=SESSION_TIMEOUT_S)
                except SessionOutcomeUnknown:
                    raise
                except Rejected as error:
                    self._refused(seat, running, [body], error)
                    raise
                self._acknowledged(seat, running, [body], [appended.index])
                self._around.journal.count("appends in sessions of members")

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self, seat: Seat, running: Running) -> None:
        book = self._around.books[seat.group.name]
        floor = book.newest
        index = await running.node.read()
        if running.process.life.is_alive:
            leads = "leaders" if running.node.role.leader == seat.member else "followers"
            self._around.journal.count(f"reads on {leads}")
            book.was_read(seat.member, floor, index, running.machine.index)

    async def _read_stale(self, seat: Seat, running: Running) -> None:
        await trio.lowlevel.checkpoint()
        running.node.read_stale(max_lag_s=1.0)
        self._around.journal.count("stale reads")

    async def _follow(self, seat: Seat, running: Running) -> None:
        book = self._around.books[seat.group.name]
        expected = None
        with trio.move_on_after(self._chance.uniform(0.0, FOLLOWS_S)):
            async for entry in running.node.committed(max(0, book.newest - 20)):
                if not running.process.life.is_alive:
                    return
                if expected is not None and entry.index != expected:
                    self._around.broken(
                        "followers see every entry", f"{seat.member}: {entry.index}, not {expected}"
                    )
                expected = entry.index + 1
                book.saw(seat.member, entry.index, entry.term, entry.magic, entry.body)

    async def _watch_roles(self, seat: Seat, running: Running) -> None:
        with trio.move_on_after(self._chance.uniform(0.0, FOLLOWS_S)):
            async for _ in running.node.role_changes():
                continue

    async def _wait_applied(self, seat: Seat, running: Running) -> None:
        with trio.move_on_after(self._chance.uniform(0.0, FOLLOWS_S)):
            await running.node.wait_applied(self._around.books[seat.group.name].newest + 3)

    # --- operating --------------------------------------------------------------------------------

    async def _snapshot(self, seat: Seat, running: Running) -> None:
        await running.node.snapshot()
        self._around.journal.count("snapshots written")

    async def _transfer(self, seat: Seat, running: Running) -> None:
        if self._chance.happens(0.2):
            await running.node.transfer_leadership()
            self._around.journal.count("transfers", seat.group.name)

    async def _look(self, seat: Seat, running: Running) -> None:
        await trio.lowlevel.checkpoint()
        running.node.status()
