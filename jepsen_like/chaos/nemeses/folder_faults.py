"""Folders that are older than they were, and folders of other members."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio

from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.executor import Done, Skipped, any_of
from jepsen_like.chaos.nemeses.file_faults import empty
from jepsen_like.simulation.chance import Chance

# How long two members run on each other's disk.
SWAPPED_S = 1.0


@asynccontextmanager
async def restored_folder(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and put the copy in place that was made when it was last hit. The first time,
    only make one.
    """
    if not group.healthy:
        raise Skipped("the group is not whole: at most one member may lack data")
    member = any_of(group, chance)
    copy = _beside(member, "copy")
    with member.held_down():
        member.kill()
        await member.ended()
        newer = _beside(member, "newer")
        _fill(newer, member.data)
        restores = copy.exists()
        if restores:
            empty(member.data)
            _fill(member.data, copy)
            shutil.rmtree(copy)
        newer.rename(copy)
        yield Done((member.name,), {"restored": restores})


@asynccontextmanager
async def swapped_folders(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Exchange the disks of two members of three for a moment, in which nothing can be committed.

    Each finds no folder of its own on the other's disk, and begins with an empty one.
    """
    if not group.healthy or len(group.present) != 3:
        raise Skipped("two of three members are needed, in a group that is whole")
    pair = sorted(chance.sample(group.present, 2), key=lambda member: member.name)
    with ExitStack() as down:
        await _exchange(pair, down)
    await trio.sleep(SWAPPED_S)
    with ExitStack() as down:
        await _exchange(pair, down)
        yield Done(tuple(member.name for member in pair))


async def _exchange(pair: list[Member], down: ExitStack) -> None:
    for member in pair:
        down.enter_context(member.held_down())
        member.kill()
    for member in pair:
        await member.ended()
    one, other = (member.data for member in pair)
    aside = _beside(pair[0], "swapped")
    _fill(aside, one)
    empty(one)
    _fill(one, other)
    empty(other)
    _fill(other, aside)
    shutil.rmtree(aside)


def _beside(member: Member, what: str) -> Path:
    return member.data.with_name(f"{member.data.name}.{what}")


def _fill(folder: Path, source: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)
