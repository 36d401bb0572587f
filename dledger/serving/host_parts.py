"""What the members of all groups in one process share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.serving.host_timer import HostTimer
from dledger.serving.platform import Platform
from dledger.serving.sync_threads import SyncThreads


class HostParts(NamedTuple):
    """One of each for a process.

    Attributes:
        connections: those that this process dials.
        timer: wakes up for all groups.
        threads: wait for the disk.
        ports: where each group's member takes in what is meant for it, by group.
        reload_tls: as in Host.
        platform: what the process runs on.
    """

    connections: Connections
    timer: HostTimer
    threads: SyncThreads
    ports: dict[str, GroupPort]
    reload_tls: Callable[[], None]
    platform: Platform
