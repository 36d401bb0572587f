"""A nemesis of our own kind for `jepsen-like run`: it kills all members while they write snapshots.

jepsen-like run --workload append --nemesis bench.snapshot_nemesis:KillAtSnapshot
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.catalogue import Kind
from jepsen_like.chaos.nemeses.executor import Done, Skipped

# Members write snapshots every few seconds under the load of a run.
PATIENCE_S = 20.0
LOOK_S = 0.002
# Calls are acknowledged in the meantime; the files are not complete yet, or just so.
LATEST_S = 0.5


class KillAtSnapshot:
    """kill -9 of all members, soon after a majority has begun to write snapshots."""

    kinds = (Kind("kill-at-snapshot", 0.2, 1.0, settle_s=2.0),)

    @asynccontextmanager
    async def carry_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        if not await group.wait_healthy(PATIENCE_S):
            raise Skipped("the group is not whole")
        members = group.present
        begun = await self._members_at_snapshots(members)
        after_s = chance.uniform(0.0, LATEST_S)
        await trio.sleep(after_s)
        with ExitStack() as stack:
            for member in members:
                stack.enter_context(member.held_down())
                member.kill()
            told = {"at_snapshots": begun, "after_s": after_s}
            yield Done(tuple(member.name for member in members), told)

    async def _members_at_snapshots(self, members: list[Member]) -> list[str]:
        before = {member.name: snapshots_of(member) for member in members}
        with trio.move_on_after(PATIENCE_S):
            while True:
                begun = [
                    member.name for member in members if snapshots_of(member) != before[member.name]
                ]
                if 2 * len(begun) > len(members):
                    return begun
                await trio.sleep(LOOK_S)
        raise Skipped(f"no majority wrote snapshots within {PATIENCE_S:g} s")


def snapshots_of(member: Member) -> frozenset[str]:
    """Return the files of a member with `snapshot` in their paths, unfinished ones too."""
    return frozenset(
        str(path)
        for path in member.data.rglob("*")
        if "snapshot" in str(path.relative_to(member.data))
    )
