"""A test cluster in a thread of its own, for tests of any kind and fixtures of any scope."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dledger.loop_thread import LoopThread
from dledger_mq.bridge import loop_for
from dledger_mq.clusters.fault_cluster import Cluster, cluster


class BlockingCluster:
    """A cluster behind plain calls. Made by `blocking_cluster`.

    Attributes:
        nameservers: for the clients of the cluster.
        nodes: the names of the brokers.
        directory: where the processes keep their files and their logs, `<name>.log`.
    """

    def __init__(self, loop: LoopThread[Cluster], cluster: Cluster) -> None:
        self.nameservers: Final = cluster.nameservers
        self.nodes: Final = cluster.nodes
        self.directory: Final = cluster.directory
        self._loop = loop
        self._cluster = cluster

    @property
    def running(self) -> list[str]:
        """As Cluster.running."""

        async def running() -> list[str]:
            return self._cluster.running

        return self._loop.submit(running).result()

    def leader(self, group: str | None = None) -> str:
        """As Cluster.leader."""
        return self._loop.submit(partial(self._cluster.leader, group)).result()

    def kill(self, name: str | None = None) -> str:
        """As Cluster.kill."""
        return self._loop.submit(partial(self._cluster.kill, name)).result()

    def freeze(self, name: str | None = None) -> str:
        """As Cluster.freeze."""
        return self._loop.submit(partial(self._cluster.freeze, name)).result()

    def resume(self, name: str) -> None:
        """As Cluster.resume."""
        self._loop.submit(partial(self._cluster.resume, name)).result()

    def restart(self, name: str) -> None:
        """As Cluster.restart."""
        self._loop.submit(partial(self._cluster.restart, name)).result()


class TrioCluster:
    """The calls of a `BlockingCluster` for tests on trio: they do not stop the test's loop.

    Cancelling a call gives up the wait only.

    Attributes:
        nameservers: for the clients of the cluster.
        nodes: the names of the brokers.
        directory: where the processes keep their files and their logs, `<name>.log`.
    """

    def __init__(self, blocking: BlockingCluster) -> None:
        self.nameservers: Final = blocking.nameservers
        self.nodes: Final = blocking.nodes
        self.directory: Final = blocking.directory
        self._blocking = blocking

    @property
    def running(self) -> list[str]:
        """As Cluster.running."""
        return self._blocking.running

    async def leader(self, group: str | None = None) -> str:
        """As Cluster.leader."""
        call = partial(self._blocking.leader, group)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def kill(self, name: str | None = None) -> str:
        """As Cluster.kill."""
        call = partial(self._blocking.kill, name)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def freeze(self, name: str | None = None) -> str:
        """As Cluster.freeze."""
        call = partial(self._blocking.freeze, name)
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def resume(self, name: str) -> None:
        """As Cluster.resume."""
        call = partial(self._blocking.resume, name)
        await trio.to_thread.run_sync(call, abandon_on_cancel=True)

    async def restart(self, name: str) -> None:
        """As Cluster.restart."""
        call = partial(self._blocking.restart, name)
        await trio.to_thread.run_sync(call, abandon_on_cancel=True)


@contextmanager
def blocking_cluster(
    *, nodes: int = 3, groups: int = 1, directory: Path | None = None
) -> Iterator[BlockingCluster]:
    """As `cluster`, for a plain `with` block: a thread of its own looks after the cluster."""
    loop = loop_for(partial(cluster, nodes=nodes, groups=groups, directory=directory), "cluster")
    opened = loop.open()
    try:
        yield BlockingCluster(loop, opened)
    finally:
        loop.close()
