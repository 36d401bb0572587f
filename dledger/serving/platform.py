"""What a process takes from the system that it runs on: disk, network, threads, chance and date.

A program that hosts members uses `SYSTEM`. A simulation hands in its own, and so runs whole hosts
as a function of a seed. The time that anything is decided by is that of trio's clock.
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
    """Milliseconds since 1970-01-01 UTC, as far as this machine knows."""
    return time.time_ns() // 1_000_000


class DiskSpace(NamedTuple):
    """Of the file system that a folder is in, in bytes."""

    free: int
    total: int


def disk_space(folder: Path) -> DiskSpace:
    """What the system says. Raises OSError."""
    found = os.statvfs(folder)
    return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    """One for a process.

    Attributes:
        disk: where the folders of members are.
        network: connections to other processes, and from them.
        run_blocking: does beside the event loop what reads or writes much.
        sync_threads: makes what runs the syncs of a process.
        chance: a number from 0 to 1; spreads elections, and tells the births of groups apart.
        wall_clock_ms: milliseconds since 1970; what leaders write into the log for people.
        disk_space: of the file system of a member's folder.
    """

    disk: Disk = field(default_factory=OsDisk)
    network: Network = TCP
    run_blocking: RunBlocking = IN_A_THREAD
    sync_threads: Callable[[], SyncThreads] = DiskThreads
    chance: Callable[[], float] = random.random
    wall_clock_ms: Callable[[], int] = wall_clock_ms
    disk_space: Callable[[Path], DiskSpace] = disk_space


SYSTEM = Platform()
