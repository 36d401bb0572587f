"""The platform of a process: disk, network, threads, randomness and date.

A program that hosts members uses `SYSTEM`. A simulation passes its own platform, and so runs whole
hosts as a function of a seed. All decisions use trio's clock, which is not part of the platform.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dledger.network.network import TCP, Network
from dledger.serving.sync_threads import DiskThreads, SyncThreads
from dledger.store.disk import Disk, OsDisk
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking


def wall_clock_ms() -> int:
    """Return the milliseconds since 1970-01-01 UTC, by the clock of this machine."""
    return time.time_ns() // 1_000_000


class DiskSpace(NamedTuple):
    """The space of a folder's file system, in bytes, available to users other than root.

    Both numbers exclude root's reserve, so that "full" means the same as in `df`.
    """

    free: int
    total: int


def disk_space(folder: Path) -> DiskSpace:
    """Return the space of the file system that `folder` is in. Raises OSError."""
    found = os.statvfs(folder)
    reserved = found.f_bfree - found.f_bavail
    return DiskSpace(found.f_bavail * found.f_frsize, (found.f_blocks - reserved) * found.f_frsize)


def state_folder() -> str | None:
    """Return the folder for state of this user's programs (XDG base directory specification).

    None if the user has no home.
    """
    home = os.path.expanduser("~")
    default = os.path.join(home, ".local", "state") if os.path.isabs(home) else ""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    folder = chosen if os.path.isabs(chosen) else default
    return os.path.join(folder, "dledger") if folder else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    """The platform of one process.

    Attributes:
        disk: where the folders of members are.
        network: dials other processes, and listens.
        run_blocking: runs long reads and writes beside the event loop.
        sync_threads: makes the threads that run the syncs of a process.
        chance: a random number from 0 to 1; spreads elections, and makes births of groups unique.
        wall_clock_ms: milliseconds since 1970; leaders write it into the log, for people.
        disk_space: of the file system of a member's folder.
        state_folder: of the user, outside of data folders; None if there is none.
        watches_loop: whether `LoopWatch` counts and logs when the event loop is held.
    """

    disk: Disk = field(default_factory=OsDisk)
    network: Network = TCP
    run_blocking: RunBlocking = IN_A_THREAD
    sync_threads: Callable[[], SyncThreads] = DiskThreads
    chance: Callable[[], float] = random.random
    wall_clock_ms: Callable[[], int] = wall_clock_ms
    disk_space: Callable[[Path], DiskSpace] = disk_space
    state_folder: Callable[[], str | None] = state_folder
    watches_loop: bool = True


SYSTEM = Platform()
