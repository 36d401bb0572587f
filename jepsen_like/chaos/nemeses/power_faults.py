"""Power cuts: members end, and their disks lose all that was not synced."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress

import trio

from jepsen_like.chaos.disks import DiskStuck, cut_power, has_power
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.executor import Done, Skipped, target_of
from jepsen_like.simulation.chance import Chance


@asynccontextmanager
async def power_cut(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Cut the power of one member or of all, and keep them down until the fault ends."""
    members = group.present if kind == "power-all" else [target_of(group, chance, kind)]
    if not any(has_power(member.data) for member in members):
        raise Skipped("no disk whose power can be cut: that needs root, a loop device, mkfs.ext4")
    with ExitStack() as stack:
        for member in members:
            stack.enter_context(member.held_down())
            kill_with_children(member)
        for member in members:
            await member.ended()
        for member in members:
            if has_power(member.data):
                try:
                    await trio.to_thread.run_sync(cut_power, member.data)
                except DiskStuck as error:
                    raise HarnessFailed(str(error)) from error
        yield Done(tuple(member.name for member in members))


def kill_with_children(member: Member) -> None:
    """Kill -9 of all processes of a member, those that it has started included."""
    group = member.pid  # the run gives each member a process group of its own
    member.kill()
    if group is not None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
