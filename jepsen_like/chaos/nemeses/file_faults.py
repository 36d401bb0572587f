"""Faults of disks: torn ends, flipped bits, emptied folders, full disks."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
