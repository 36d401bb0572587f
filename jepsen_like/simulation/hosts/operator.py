"""An operator that replaces members of groups by others at the same address."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from dledger.core.membership.configuration_change import AddVoter, Change, Remove
from dledger.errors import DLedgerError
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.looking import until
from jepsen_like.simulation.hosts.plan import GroupPlan
from jepsen_like.simulation.hosts.seat import Running, Seat
from jepsen_like.simulation.hosts.virtual_host import VirtualHost

MEAN_PAUSE_S = 3.0
# How often the operator checks whether a change was made.
AGAIN_S = 0.3
CHANGE_TIMEOUT_S = 3.0


class Operator:
    """The operator of one group; once `stopped`, it begins no other replacement."""

    def __init__(self, around: Around, group: GroupPlan, hosts: Sequence[VirtualHost]) -> None:
        self.stopped = False
        self._around = around
        self.group = group
        self._hosts = hosts
        self._chance = Chance(around.plan.seed, f"operator {group.name}")
        self._made = 0

    def leader(self) -> Running | None:
        """Return the ready leader of the highest term."""
        found = [
            seat.running
            for host in self._hosts
            for seat in host.seats
            if seat.group.name == self.group.name
            and seat.running is not None
            and seat.running.process.life.is_alive
            and seat.running.node.is_ready_leader
        ]
        return max(found, key=lambda running: running.node.term, default=None)

    async def run(self) -> None:
        """Replace members, one after the other, until `stopped`."""
        while True:
            await trio.sleep(self._chance.wait_s(MEAN_PAUSE_S))
            if self.stopped:
                return
            host = self._chance.choice(self._hosts)
            for seat in host.seats:
                if seat.group.name == self.group.name and seat.returns:
                    await self._replace(host, seat)
                    break

    async def _replace(self, host: VirtualHost, old: Seat) -> None:
        """Replace a member by another one with an empty folder, at the same address."""
        self._made += 1
        name = f"{old.member.partition('-')[0]}-{self._made}"
        what = f"replacement of {old.member} by {name} in {self.group.name}"
        with self._around.calls.waits(what):
            old.returns = False
            await self._change_until(Remove(old.member), old.member, belongs=False)
            old.removed = True
            old.want(False)
            await until(lambda: not old.is_taken)
            peers = {name: host.address}
            new = Seat(self._around, self.group, name, peers, joins=True)
            host.add(new)
            await self._change_until(AddVoter(name, host.address), name, belongs=True)
            self._around.journal.count("members replaced", self.group.name, what)

    async def _change_until(self, change: Change, member: str, *, belongs: bool) -> None:
        while True:
            leader = self.leader()
            if leader is not None:
                configuration = leader.node.configuration.configuration
                if (member in configuration.members) is belongs and not configuration.is_joint:
                    return
                await self._try(leader, change)
            await trio.sleep(AGAIN_S)

    async def _try(self, leader: Running, change: Change) -> None:
        try:
            with (
                trio.move_on_after(CHANGE_TIMEOUT_S),
                self._around.calls.waits(f"change of {self.group.name}", leader.node),
            ):
                await leader.node.change([change])
        except DLedgerError as error:
            self._around.journal.count(f"changes: {type(error).__name__}")
