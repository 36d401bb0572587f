"""Changes of the members of a group. Each is undone when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member, OrderFailed
from jepsen_like.chaos.nemeses.disk_faults import empty
from jepsen_like.chaos.nemeses.executor import Done, Executors, Skipped, check_whole
from jepsen_like.simulation.chance import Chance

# One attempt at a change, and all of them: a partition lasts for some seconds, and the group is not
# to be left between two configurations. Attempts do not follow one another in a busy loop.
CHANGE_TIMEOUT_S = 10.0
ALL_ATTEMPTS_S = 60.0
PAUSE_S = 0.5


class MembershipFaults:
    """Grows, shrinks and replaces.

    Args:
        new_member: makes a further member, which joins; its argument is the name of a member whose
            name and address it takes, or None for new ones.
        addresses: host:port of a member, as the others reach it.
    """

    def __init__(
        self,
        new_member: Callable[[str | None], Member],
        address: Callable[[str], str],
        finding: Callable[[str], None],
    ) -> None:
        self._new_member = new_member
        self._address = address
        self._finding = finding

    @property
    def executors(self) -> Executors:
        """What carries out each."""
        return {
            "grow": self.grow,
            "shrink": self.shrink,
            "replace": self.replace,
            "replace-at-address": self.replace_at_address,
        }

    async def add(self, group: Group, names: Sequence[str]) -> None:
        """Add members that were started to join, one after the other. Raises Skipped."""
        for name in names:
            await self._change(group, {name: self._address(name)}, ())

    @asynccontextmanager
    async def grow(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """A member more, for a while."""
        _check(group)
        new = self._new_member(None)
        group.start(new)
        await self._change(group, {new.name: self._address(new.name)}, ())
        try:
            yield Done((new.name,))
        finally:
            await self._change(group, {}, (new.name,))
            _retire(new)

    @asynccontextmanager
    async def shrink(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """A member less, for a while; it comes back with an empty folder."""
        _check(group)
        old = chance.choice(group.present)
        await self._change(group, {}, (old.name,))
        await _leave(old)
        try:
            yield Done((old.name,))
        finally:
            await self._return(group, old)

    @asynccontextmanager
    async def replace(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Another member in the place of one, for a while."""
        _check(group)
        old = chance.choice(group.present)
        new = self._new_member(None)
        group.start(new)
        await self._change(group, {new.name: self._address(new.name)}, (old.name,))
        await _leave(old)
        try:
            yield Done((old.name, new.name))
        finally:
            await self._return(group, old)
            await self._change(group, {}, (new.name,))
            _retire(new)

    @asynccontextmanager
    async def replace_at_address(
        self, group: Group, chance: Chance, kind: str
    ) -> AsyncIterator[Done]:
        """A machine is exchanged: removed, emptied, and added again under its name."""
        _check(group)
        old = chance.choice(group.present)
        await self._change(group, {}, (old.name,))
        await _leave(old)
        await self._return(group, old)
        yield Done((old.name,))

    async def _return(self, group: Group, old: Member) -> None:
        back = self._new_member(old.name)
        group.start(back)
        await self._change(group, {back.name: self._address(back.name)}, ())

    async def _change(self, group: Group, add: dict[str, str], remove: tuple[str, ...]) -> None:
        """Have the leader change the group; another attempt may find that it is done.

        Raises Skipped if it cannot be done in time, which is a finding, too.
        """
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
                    await leader.order("change", CHANGE_TIMEOUT_S, add=add, remove=list(remove))
                    return
                except OrderFailed as error:
                    problem = str(error)
            await trio.sleep(PAUSE_S)
        self._finding(
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
