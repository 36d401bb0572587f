"""Faults of disks: torn ends, flipped bits, emptied folders, full disks."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio

from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.executor import Done, Skipped, any_of
from jepsen_like.simulation.chance import Chance

# Bytes that are cut off the end of a log: less than an entry, up to some.
TORN_BYTES_MAX = 400
# What `dledger rejoin` moves files into: nobody reads them any more.
ASIDE = "/aside-"
# Left of a full disk: less than an entry.
FILLER = "filler"


def _victim(group: Group, chance: Chance) -> Member:
    """A member whose data may be harmed: all others must be whole. Raises Skipped."""
    if not group.healthy:
        raise Skipped("the group is not whole: at most one member may lack data")
    return any_of(group, chance)


def _segments(member: Member) -> list[Path]:
    return sorted((member.folder / "data").glob("[0-9]*"))


def _used_end(path: Path) -> int:
    """Where the last byte of a file is that is not 0: segments are written ahead with zeros."""
    content = path.read_bytes()
    return len(content.rstrip(b"\0"))


@asynccontextmanager
async def torn_tail(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and overwrite the end of its log by zeros, as a lost write does."""
    member = _victim(group, chance)
    with member.held_down():
        member.kill()
        await member.ended()
        used = [(path, end) for path in _segments(member) if (end := _used_end(path))]
        if not used:
            raise Skipped(f"the log of {member.name} is empty")
        path, end = used[-1]
        size = min(end, chance.randint(1, TORN_BYTES_MAX))
        _overwrite(path, end - size, bytes(size))
        yield Done((member.name,), {"file": path.name, "offset": end - size, "bytes": size})


@asynccontextmanager
async def flipped_bit(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and flip a bit of what its folder holds."""
    member = _victim(group, chance)
    with member.held_down():
        member.kill()
        await member.ended()
        files = [
            path
            for path in sorted(member.folder.rglob("*"))
            if path.is_file() and ASIDE not in str(path) and _used_end(path)
        ]
        if not files:
            raise Skipped(f"{member.name} has no files")
        segments = [path for path in files if path.parent.name == "data"]
        path = chance.choice(segments if segments and chance.happens(0.7) else files)
        offset, bit = chance.randrange(_used_end(path)), chance.randrange(8)
        byte = path.read_bytes()[offset]
        _overwrite(path, offset, bytes([byte ^ (1 << bit)]))
        name = str(path.relative_to(member.folder))
        yield Done((member.name,), {"file": name, "offset": offset, "bit": bit})


@asynccontextmanager
async def wiped_folder(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and empty its folder."""
    member = _victim(group, chance)
    with member.held_down():
        member.kill()
        await member.ended()
        empty(member.data)
        yield Done((member.name,))


@asynccontextmanager
async def wiped_alone(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Empty the folder of a member, and start it while all others are down: it must wait for them.

    Mostly that of the first member: a group may have grown from it.
    """
    _victim(group, chance)
    first = min(group.present, key=lambda member: member.name)
    member = first if chance.happens(0.7) else any_of(group, chance)
    with ExitStack() as others:
        with member.held_down():
            await _bring_down(group.present, others, but=member)
            empty(member.data)
        yield Done((member.name,))


@asynccontextmanager
async def mislaid_folders(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Start most members with empty folders while the others are down, then put theirs back."""
    _victim(group, chance)
    members = group.present
    least = len(members) - len(members) // 2
    away = chance.sample(members, chance.randint(least, max(least, len(members) - 1)))
    if len(away) == len(members) or any(_is_disk(member.data) for member in away):
        raise Skipped("some member keeps its folder, and folders can be moved, or nothing is tried")
    with ExitStack() as others:
        with ExitStack() as held:
            await _bring_down(members, held)
            for member in members:
                if member not in away:
                    others.enter_context(member.held_down())
            for member in away:
                member.data.rename(_mislaid(member))
                member.data.mkdir()
        try:
            yield Done(tuple(member.name for member in away))
        finally:
            with ExitStack() as held, trio.CancelScope(shield=True):
                await _bring_down(away, held)
                for member in away:
                    shutil.rmtree(member.data)
                    _mislaid(member).rename(member.data)


def _mislaid(member: Member) -> Path:
    return member.data.with_name(f"{member.data.name}-mislaid")


async def _bring_down(members: list[Member], held: ExitStack, but: Member | None = None) -> None:
    """Kill all of these; all are held down by `held`, but for one that may be started again."""
    for member in members:
        if member is not but:
            held.enter_context(member.held_down())
        member.kill()
    for member in members:
        await member.ended()


@asynccontextmanager
async def disk_full(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Fill the disk of a member, which must be a file system of its own."""
    member = _victim(group, chance)
    if not _is_disk(member.data):
        raise Skipped("the members have no disks of their own: that needs root")
    fill(member.data)
    try:
        yield Done((member.name,))
    finally:
        free(member.data)


def _is_disk(folder: Path) -> bool:
    return os.path.ismount(folder)


def fill(folder: Path) -> None:
    """Use all that is left of a file system."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        for piece in (1024 * 1024, 4096):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue  # it is full up to a smaller piece


def empty(folder: Path) -> None:
    """Remove all that a member has, also what lies beside its log, such as consume queues."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def free(folder: Path) -> None:
    """Undo `fill`."""
    (folder / FILLER).unlink(missing_ok=True)


def _overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
