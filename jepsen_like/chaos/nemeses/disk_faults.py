"""Faults of disks: torn ends, flipped bits, emptied, old and exchanged folders, power cuts."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.disks import DiskStuck, cut_power, has_power
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.executor import (
    Done,
    Executors,
    Skipped,
    any_of,
    check_whole,
    target_of,
)

# Bytes that are cut off the end of a log: from less than an entry to some entries.
TORN_BYTES_MAX = 400
# `dledger rejoin` moves files to such folders, which are not read again.
ASIDE = "/aside-"
# The file that fills a disk.
FILLER = "filler"
# How long two members run on each other's disk.
SWAPPED_S = 1.0


def _victim(group: Group, chance: Chance) -> Member:
    """Return a member whose data may be harmed: all others must be whole. Raises Skipped."""
    check_whole(group, ": at most one member may lack data")
    return any_of(group, chance)


@asynccontextmanager
async def _down(
    members: Sequence[Member], kill: Callable[[Member], None] = Member.kill
) -> AsyncIterator[None]:
    """Kill members, and keep them down during a block."""
    with ExitStack() as held:
        for member in members:
            held.enter_context(member.held_down())
            kill(member)
        for member in members:
            await member.ended()
        yield


def _segments(member: Member) -> list[Path]:
    return sorted((member.folder / "data").glob("[0-9]*"))


def _used_end(path: Path) -> int:
    """Return the end of a file without its zeros: segments are written ahead with zeros."""
    content = path.read_bytes()
    return len(content.rstrip(b"\0"))


@asynccontextmanager
async def torn_tail(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and overwrite the end of its log by zeros, as a lost write does."""
    member = _victim(group, chance)
    async with _down([member]):
        used = [(path, end) for path in _segments(member) if (end := _used_end(path))]
        if not used:
            raise Skipped(f"the log of {member.name} is empty")
        path, end = used[-1]
        size = min(end, chance.randint(1, TORN_BYTES_MAX))
        _overwrite(path, end - size, bytes(size))
        yield Done((member.name,), {"file": path.name, "offset": end - size, "bytes": size})


@asynccontextmanager
async def flipped_bit(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and flip a bit of a file in its folder."""
    member = _victim(group, chance)
    async with _down([member]):
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
    member = _victim(group, chance)
    async with _down([member]):
        empty(member.data)
        yield Done((member.name,))


@asynccontextmanager
async def wiped_alone(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Empty the folder of a member, and start it while all others are down: it must wait for them.

    It is mostly the first member: a group may have grown from it.
    """
    _victim(group, chance)
    first = min(group.present, key=lambda member: member.name)
    member = first if chance.happens(0.7) else any_of(group, chance)
    async with _down([other for other in group.present if other is not member]):
        async with _down([member]):
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
    async with _down([member for member in members if member not in away]):
        async with _down(away):
            for member in away:
                member.data.rename(_beside(member, "mislaid"))
                member.data.mkdir()
        try:
            yield Done(_names(away))
        finally:
            with trio.CancelScope(shield=True):
                async with _down(away):
                    for member in away:
                        shutil.rmtree(member.data)
                        _beside(member, "mislaid").rename(member.data)


@asynccontextmanager
async def restored_folder(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill a member, and replace its folder by the copy that was made when it was last hit.

    The first time, only make a copy.
    """
    member = _victim(group, chance)
    copy = _beside(member, "copy")
    async with _down([member]):
        newer = _beside(member, "newer")
        _copy(member.data, newer)
        restores = copy.exists()
        if restores:
            empty(member.data)
            _copy(copy, member.data)
            shutil.rmtree(copy)
        newer.rename(copy)
        yield Done((member.name,), {"restored": restores})


@asynccontextmanager
async def swapped_folders(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Exchange the disks of two members of three for a moment, in which nothing can be committed.

    Neither finds a folder of its own on the other's disk, so each begins with an empty one.
    """
    if not group.healthy or len(group.present) != 3:
        raise Skipped("two of three members are needed, in a group that is whole")
    pair = sorted(chance.sample(group.present, 2), key=lambda member: member.name)
    async with _down(pair):
        _exchange(*pair)
    await trio.sleep(SWAPPED_S)
    async with _down(pair):
        _exchange(*pair)
        yield Done(_names(pair))


def _exchange(one: Member, other: Member) -> None:
    aside = _beside(one, "swapped")
    _copy(one.data, aside)
    empty(one.data)
    _copy(other.data, one.data)
    empty(other.data)
    _copy(aside, other.data)
    shutil.rmtree(aside)


@asynccontextmanager
async def power_cut(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Cut the power of one member or of all, and keep them down until the fault ends.

    Their disks lose all unsynced data.
    """
    members = group.present if kind == "power-all" else [target_of(group, chance, kind)]
    if not any(has_power(member.data) for member in members):
        raise Skipped("no disk whose power can be cut: that needs root, a loop device, mkfs.ext4")
    async with _down(members, _kill_with_children):
        for member in members:
            if has_power(member.data):
                try:
                    await trio.to_thread.run_sync(cut_power, member.data)
                except DiskStuck as error:
                    raise HarnessFailed(str(error)) from error
        yield Done(_names(members))


def _kill_with_children(member: Member) -> None:
    """Kill -9 all processes of a member, with those that it has started."""
    group = member.pid  # the run gives each member a process group of its own
    member.kill()
    if group is not None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


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
    """Use all free space of a file system."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        for piece in (1024 * 1024, 4096):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue  # no piece of this size fits any more


def empty(folder: Path) -> None:
    """Remove all files of a member, also those beside its log, such as consume queues."""
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


def _beside(member: Member, what: str) -> Path:
    return member.data.with_name(f"{member.data.name}.{what}")


def _copy(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)


DISK_FAULTS: Executors = {
    "tail": torn_tail,
    "flip": flipped_bit,
    "wipe": wiped_folder,
    "restore": restored_folder,
    "swap": swapped_folders,
    "wiped-alone": wiped_alone,
    "mislaid-folders": mislaid_folders,
    "disk-full": disk_full,
    "power": power_cut,
}
