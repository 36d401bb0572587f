"""Injects faults into running hosts, and repairs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.seat import Seat
from jepsen_like.simulation.hosts.virtual_host import VirtualHost

# How long a fault lasts: shorter than an election, or several of them.
LASTS_S = (0.05, 3.0)
# The speed of a slow line: a large push takes seconds.
SLOW_BYTES_PER_S = (5_000.0, 200_000.0)


class Breakage:
    """The faults of one run, each kind at times of its own.

    `calm_since` is when the network was last healed; infinite while it has faults.
    """

    def __init__(
        self,
        around: Around,
        hosts: Sequence[VirtualHost],
        use_once_more: Callable[[VirtualHost, Seat], None],
    ) -> None:
        self._use_once_more = use_once_more
        self._around = around
        self._hosts = hosts
        self._names: list[str] = [host.name for host in hosts]
        self.calm_since = 0.0
        self.stopped = False
        self._kinds: dict[str, Callable[[Chance], Awaitable[None]]] = {
            "broken machines": self._break_machine,
            "closed groups": self._close_group,
            "closed hosts": self._close_host,
            "hanging disks": self._hang,
            "kills": self._kill,
            "one-way cuts": self._cut_one_way,
            "partitions": self._partition,
            "power cuts": self._cut_power,
            "refused connections": self._refuse,
            "resets": self._reset,
            "slow lines": self._slow,
        }

    def client_came(self, name: str) -> None:
        """Break lines to that machine, too."""
        self._names.append(name)

    async def run(self, kind: str, mean_s: float) -> None:
        """Inject faults of one kind, again and again, until cancelled."""
        chance = Chance(self._around.plan.seed, f"fault {kind}")
        while True:
            await trio.sleep(chance.wait_s(mean_s))
            await self._kinds[kind](chance)

    def put_right(self) -> None:
        """Start every host, and heal every line."""
        self._heal()
        for host in self._hosts:
            host.hangs_until = 0.0
            host.power_back()
            host.returns = True
            host.start()
            for seat in host.seats:
                if not seat.removed:
                    seat.want(True)

    # --- processes and disks ----------------------------------------------------------------------

    async def _kill(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        if host.process is None:
            return
        self._around.journal.count("kills", host.name)
        host.kill()
        await self._lasts(chance)
        host.start()

    async def _cut_power(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        if not host.endpoint.is_up:
            return
        self._around.journal.count("power cuts", host.name)
        host.cut_power()
        await self._lasts(chance)
        host.power_back()
        host.start()

    async def _close_host(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        process = host.process
        if process is None:
            return
        self._around.journal.count("closed hosts", host.name)
        host.close()
        while host.process is process:
            await self._lasts(chance)
        host.start()

    async def _hang(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        lasts_s = chance.uniform(*LASTS_S)
        self._around.journal.count("hanging disks", host.name, f"{lasts_s:.3f} s")
        host.hangs_until = trio.current_time() + lasts_s
        await trio.sleep(lasts_s)

    async def _close_group(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        seats = [seat for seat in host.seats if seat.returns and seat.wanted]
        if not seats:
            return
        seat = chance.choice(seats)
        self._around.journal.count("closed groups", f"{seat.group.name}/{seat.member}")
        self._use_once_more(host, seat)
        seat.want(False)
        await self._lasts(chance, longest_s=6.0)
        if not seat.removed:
            seat.want(True)

    async def _break_machine(self, chance: Chance) -> None:
        seats = [seat for host in self._hosts for seat in host.seats if seat.running is not None]
        if not seats:
            return
        seat = chance.choice(seats)
        if seat.running is not None:
            self._around.journal.count("broken machines", f"{seat.group.name}/{seat.member}")
            seat.running.machine.breaks = True

    # --- the network ------------------------------------------------------------------------------

    async def _partition(self, chance: Chance) -> None:
        names = chance.sample(self._names, len(self._names))
        here = names[: chance.randint(1, len(names) - 1)]
        self._cut(here, names[len(here) :])
        self._cut(names[len(here) :], here)
        self._around.journal.count("partitions", "-", " ".join(here))
        await self._lasts(chance)
        self._heal()

    async def _cut_one_way(self, chance: Chance) -> None:
        source = chance.choice(self._names)
        targets = [name for name in self._names if name != source]
        targets = chance.sample(targets, chance.randint(1, len(targets)))
        if chance.happens(0.5):
            self._cut([source], targets)
        else:
            self._cut(targets, [source])
        self._around.journal.count("one-way cuts", source, " ".join(targets))
        await self._lasts(chance)
        self._heal()

    async def _reset(self, chance: Chance) -> None:
        one, other = chance.sample(self._names, 2)
        self._around.journal.count("resets", one, other)
        self._around.internet.reset_between(one, other)
        await trio.lowlevel.checkpoint()

    async def _refuse(self, chance: Chance) -> None:
        host = chance.choice(self._hosts)
        self._around.journal.count("refused connections", host.name)
        self._storm()
        host.endpoint.refuses = True
        for other in self._names:
            if other != host.name:
                self._around.internet.reset_between(host.name, other)
        await self._lasts(chance)
        self._heal()

    async def _slow(self, chance: Chance) -> None:
        one, other = chance.sample(self._names, 2)
        self._around.journal.count("slow lines", one, other)
        self._storm()
        self._around.internet.line(one, other).bytes_per_s = chance.uniform(*SLOW_BYTES_PER_S)
        await self._lasts(chance)
        self._heal()

    def _cut(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self._storm()
        for source in sources:
            for target in targets:
                self._around.internet.cut(source, target)

    def _storm(self) -> None:
        self.calm_since = float("inf")

    def _heal(self) -> None:
        self.calm_since = trio.current_time()
        self._around.internet.heal()

    async def _lasts(self, chance: Chance, longest_s: float = LASTS_S[1]) -> None:
        await trio.sleep(chance.uniform(LASTS_S[0], longest_s))
