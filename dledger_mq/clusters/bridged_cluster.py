"""A test cluster run by a thread of its own, for tests of any kind and fixtures of any scope."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import trio

from dledger.forms import like, waits
from dledger.loop_thread import LoopThread
from dledger_mq.bridge import loop_for
from dledger_mq.clusters.fault_cluster import Cluster, cluster

P = ParamSpec("P")
R = TypeVar("R")


class BlockingCluster:
    """A cluster with blocking calls. Made by `blocking_cluster`.

    Attributes:
        nameservers: for the clients of the cluster.
        nodes: the names of the brokers.
        directory: holds the files of the processes, and their logs as `<name>.log`.
    """

    def __init__(self, loop: LoopThread[Cluster], cluster: Cluster) -> None:
        self.nameservers: Final = cluster.nameservers
        self.nodes: Final = cluster.nodes
        self.directory: Final = cluster.directory
        self._loop = loop
        self._inner = cluster

    @property
    def running(self) -> list[str]:
        """The names of the processes that run now, frozen ones included."""

        async def running() -> list[str]:
            return self._inner.running

        return self._loop.wait(running)

    leader = waits(Cluster.leader)
    kill = waits(Cluster.kill)
    freeze = waits(Cluster.freeze)
    resume = waits(Cluster.resume)
    restart = waits(Cluster.restart)


def _in_a_thread(
    method: Callable[Concatenate[BlockingCluster, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @like(method)
    async def call(cluster: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = partial(method, cluster._blocking, *args, **kwargs)
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)

    return call


class TrioCluster:
    """The calls of a `BlockingCluster` for tests on trio: they do not block the test's loop.

    Cancelling a call abandons the wait only.

    Attributes:
        nameservers: for the clients of the cluster.
        nodes: the names of the brokers.
        directory: holds the files of the processes, and their logs as `<name>.log`.
    """

    def __init__(self, blocking: BlockingCluster) -> None:
        self.nameservers: Final = blocking.nameservers
        self.nodes: Final = blocking.nodes
        self.directory: Final = blocking.directory
        self._blocking = blocking

    @property
    def running(self) -> list[str]:
        """The names of the processes that run now, frozen ones included."""
        return self._blocking.running

    leader = _in_a_thread(BlockingCluster.leader)
    kill = _in_a_thread(BlockingCluster.kill)
    freeze = _in_a_thread(BlockingCluster.freeze)
    resume = _in_a_thread(BlockingCluster.resume)
    restart = _in_a_thread(BlockingCluster.restart)


@contextmanager
def blocking_cluster(
    *, nodes: int = 3, groups: int = 1, directory: Path | None = None
) -> Iterator[BlockingCluster]:
    """Run a cluster during a plain `with` block, see `cluster`; a thread of its own runs it."""
    loop = loop_for(partial(cluster, nodes=nodes, groups=groups, directory=directory), "cluster")
    opened = loop.open()
    try:
        yield BlockingCluster(loop, opened)
    finally:
        loop.close()
