"""A machine with a disk, and on it the process that hosts members of many groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from dledger.node.host import Host, HostConfig, open_host
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.looking import until
from jepsen_like.simulation.hosts.process import Process
from jepsen_like.simulation.hosts.seat import Seat
from jepsen_like.simulation.hosts.virtual_internet import MachineNetwork
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk

PORT = 20911

# A host that is asked to close while there is no fault has closed after this time.
CLOSE_S = 5.0


class VirtualHost:
    """One machine.

    Attributes:
        process: while it runs.
        returns: whether it is started again when it ends in order.
    """

    def __init__(self, around: Around, number: int) -> None:
        self.name = f"h{number}"
        self.number = number
        self.seats: list[Seat] = []
        self.process: Process | None = None
        self.endpoint = around.internet.add(self.name)
        self.hangs_until = 0.0
        self.returns = False
        self._around = around
        self._chance = Chance(around.plan.seed, f"machine {self.name}")
        self._disk = VirtualDisk(Chance(around.plan.seed, f"disk {self.name}"))
        self.host: Host | None = None
        self._seats: trio.Nursery | None = None
        self._users: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._lives = 0

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    def add(self, seat: Seat) -> None:
        self.seats.append(seat)
        if self._seats is not None and self.host is not None and self.process is not None:
            self._seats.start_soon(seat.run, self.host, self.process)

    def use(self, call: Callable[[], Awaitable[None]]) -> bool:
        """Run a task in the process, as its application would; return whether the process runs."""
        if self._users is None:
            return False
        self._users.start_soon(call)
        return True

    # --- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.process is None:
            self._lives += 1
            chance = Chance(self._around.plan.seed, f"{self.name} life {self._lives}")
            self.process = Process(
                self._around.nursery,
                self._disk,
                self._around.plan.disk,
                lambda alive: MachineNetwork(self._around.internet, self.endpoint, alive),
                lambda: trio.current_time() < self.hangs_until,
                chance,
            )
            self._around.nursery.start_soon(self._run, self.process)

    def close(self) -> None:
        self._stop.set()

    def kill(self) -> None:
        """Kill the process; the machine runs on, and closes its connections."""
        if self._end():
            self._disk.end_process()
            self._around.internet.process_ended(self.endpoint)

    def cut_power(self) -> None:
        """Cut the machine's power: the disk loses unsynced writes, and connections get no reset."""
        ended = self._end()
        style = CrashStyle(
            self._chance.choice((0.0, 0.5, 1.0)), 0.5, names_in_order=self._chance.happens(0.5)
        )
        self._disk.cut_power(style)
        self._around.internet.power_lost(self.endpoint)
        if ended:
            self._around.journal.note(self.name, "its power is gone")

    def power_back(self) -> None:
        """Start the machine, without the process."""
        if not self.endpoint.is_up:
            self._around.internet.power_back(self.endpoint)

    def _end(self) -> bool:
        process = self.process
        if process is None:
            return False
        process.life.end()
        self._scope.cancel()
        self.process = self.host = self._seats = self._users = None
        return True

    async def _run(self, process: Process) -> None:
        self._scope, self._stop = scope, stop = trio.CancelScope(), trio.Event()
        again = False
        try:
            with scope:
                await self._serve(process, stop)
                again = self.returns
        except* trio.Cancelled:
            raise
        except* Exception as errors:
            if process.life.is_alive:
                self._around.broken("hosts live on", f"{self.name}: {first_of(errors)!r}")
        finally:
            if self.process is process:
                self.process = self.host = self._seats = self._users = None
                process.life.end()
                self._disk.end_process()
                self._around.internet.process_ended(self.endpoint)
        if again:
            self.start()

    async def _serve(self, process: Process, stop: trio.Event) -> None:
        async with trio.open_nursery() as users:
            self._users = users
            async with (
                open_host(HostConfig(address=self.address), process.platform) as host,
                trio.open_nursery() as nursery,
            ):
                self.host, self._seats = host, nursery
                self._around.journal.count("hosts opened", self.name)
                for seat in self.seats:
                    nursery.start_soon(seat.run, host, process)
                await stop.wait()
                self._users = self._seats = None
                self._around.journal.count("hosts closed in order", self.name)
                nursery.cancel_scope.cancel()
            with trio.move_on_after(CLOSE_S):
                await until(lambda: not users.child_tasks)
            users.cancel_scope.cancel()


def first_of(errors: BaseException) -> BaseException:
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
