"""Changes of the members of a group. Each is undone when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member, OrderFailed
from jepsen_like.chaos.nemeses.disk_faults import empty
from jepsen_like.chaos.nemeses.executor import Done, Executors, Skipped, check_whole

# One attempt at a change, and all of them: a partition lasts for some seconds, and the group is not
# to be left between two configurations. Attempts do not follow one another in a busy loop.
CHANGE_TIMEOUT_S = 10.0
ALL_ATTEMPTS_S = 60.0
PAUSE_S = 0.5


@dataclass
class MembershipFaults:
    """Grows, shrinks and replaces groups.

    `new_member` makes a member that joins, with the name and address of another one or new ones.
    """

    new_member: Callable[[str | None], Member]
    address: Callable[[str], str]
    finding: Callable[[str], None]

    @property
    def executors(self) -> Executors:
        return {
            "membership": self.change,
            "replace-at-address": self.replace_at_address,
        }

    async def add(self, group: Group, names: Sequence[str]) -> None:
        """Add members that were started to join, one after the other. Raises Skipped."""
        for name in names:
            await self._change(group, (name,), ())

    @asynccontextmanager
    async def change(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Add, remove or replace a member for a while.

        One that left comes back with an empty folder.
        """
        _check(group)
        old = [chance.choice(group.present)] if kind != "grow" else []
        new = [self.new_member(None)] if kind != "shrink" else []
        for member in new:
            group.start(member)
        await self._change(group, _names(new), _names(old))
        for member in old:
            await _leave(member)
        try:
            yield Done(_names([*old, *new]))
        finally:
            for member in old:
                await self._return(group, member)
            for member in new:
                await self._change(group, (), _names([member]))
                _retire(member)

    @asynccontextmanager
    async def replace_at_address(
        self, group: Group, chance: Chance, kind: str
    ) -> AsyncIterator[Done]:
        """Exchange a machine: remove it, empty it, and add it again under its name."""
        _check(group)
        old = chance.choice(group.present)
        await self._change(group, (), (old.name,))
        await _leave(old)
        await self._return(group, old)
        yield Done((old.name,))

    async def _return(self, group: Group, old: Member) -> None:
        back = self.new_member(old.name)
        group.start(back)
        await self._change(group, (back.name,), ())

    async def _change(self, group: Group, add: Sequence[str], remove: Sequence[str]) -> None:
        """Have the leader change the group; a second attempt may find the change made.

        Raises Skipped if it cannot be done in time, which is a finding, too.
        """
        addresses = {name: self.address(name) for name in add}
        problem, tried = "no member leads", False
        until = trio.current_time() + ALL_ATTEMPTS_S
        while trio.current_time() < until:
            leader = group.leader
            if leader is not None:
                # Before the first attempt, a status may be older than the change before this one.
                voters = set(leader.status.get("voters", ()))
                if tried and set(add) <= voters and not voters & set(remove):
                    return
                tried = True
                try:
                    changes = {"add": addresses, "remove": list(remove)}
                    await leader.order("change", CHANGE_TIMEOUT_S, **changes)
                    return
                except OrderFailed as error:
                    problem = str(error)
            await trio.sleep(PAUSE_S)
        self.finding(
            f"a change (add {sorted(add)}, remove {list(remove)}) failed for {ALL_ATTEMPTS_S:g} s: "
            f"{problem}"
        )
        raise Skipped(f"the members cannot be changed: {problem}")


def _check(group: Group) -> None:
    check_whole(group, ": a change waits for all members")


async def _leave(member: Member) -> None:
    """A member that was removed ends, and its disk is emptied."""
    _retire(member)
    await member.ended()
    empty(member.data)


def _retire(member: Member) -> None:
    member.retired = True
    member.stop()


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)
