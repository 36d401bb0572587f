"""The parts of a process that the members of all its groups share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.loop_watch import LoopWatch
from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.serving.host_timer import HostTimer
from dledger.serving.platform import Platform
from dledger.serving.sync_threads import SyncThreads


class HostParts(NamedTuple):
    """The shared parts of one process.

    Attributes:
        connections: the outgoing connections of this process.
        timer: the alarm clock of all groups.
        threads: run syncs of all groups.
        ports: the port of each group's member, by group.
        reload_tls, reload_users: as in Host.
        platform: what the process runs on.
        loop_watch: counts when the loop is held; None without a watch.
    """

    connections: Connections
    timer: HostTimer
    threads: SyncThreads
    ports: dict[str, GroupPort]
    reload_tls: Callable[[], None]
    reload_users: Callable[[], None]
    platform: Platform
    loop_watch: LoopWatch | None
