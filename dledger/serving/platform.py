"""What a process takes from the system that it runs on: disk, network, threads and chance.

A program that hosts members uses `SYSTEM`. A simulation hands in its own, and so runs whole hosts
as a function of a seed. Time needs no part here: it is that of trio's clock.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dledger.network.network import TCP, Network
from dledger.serving.sync_threads import DiskThreads, SyncThreads
from dledger.store.disk import Disk, OsDisk
from dledger.waits.blocking_work import IN_A_THREAD, RunBlocking


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
        chance: a number from 0 to 1; spreads elections.
        disk_space: of the file system of a member's folder.
    """

    disk: Disk = field(default_factory=OsDisk)
    network: Network = TCP
    run_blocking: RunBlocking = IN_A_THREAD
    sync_threads: Callable[[], SyncThreads] = DiskThreads
    chance: Callable[[], float] = random.random
    disk_space: Callable[[Path], DiskSpace] = disk_space


SYSTEM = Platform()
