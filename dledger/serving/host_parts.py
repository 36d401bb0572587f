"""What the members of all groups in one process share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.serving.host_timer import HostTimer


class HostParts(NamedTuple):
    """One of each for a process.

    Attributes:
        connections: those that this process dials.
        timer: wakes up for all groups.
        threads: wait for the disk.
        ports: where each group's member takes in what is meant for it, by group.
        reload_tls: as in Host.
    """

    connections: Connections
    timer: HostTimer
    threads: ThreadPoolExecutor
    ports: dict[str, GroupPort]
    reload_tls: Callable[[], None]
