"""The pytest plugin: fixtures that give a test a cluster of real processes, or a simulated group.

pytest loads it in every run where this project is installed. So it loads the rest of the project
only when a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dledger_mq.testing import BlockingCluster, TrioCluster
    from jepsen_like import World


@pytest.fixture
def mq_cluster() -> Iterator[BlockingCluster]:
    """A name server and three brokers as processes of this machine, behind plain calls."""
    from dledger_mq.testing import blocking_cluster

    with blocking_cluster() as cluster:
        yield cluster


@pytest.fixture
def trio_mq_cluster(mq_cluster: BlockingCluster) -> TrioCluster:
    """The same cluster for a test that runs on trio: its calls are awaited."""
    from dledger_mq.testing import TrioCluster

    return TrioCluster(mq_cluster)


@pytest.fixture
def simulated_group() -> Iterator[Callable[..., World]]:
    """Makes groups in virtual time that run a state machine, as `jepsen_like.simulate` does.

    Their ends are checked after the test, unless it has failed.
    """
    from jepsen_like import simulate

    with ExitStack() as groups:

        def make(*arguments: object, **settings: object) -> World:
            return groups.enter_context(simulate(*arguments, **settings))  # type: ignore[arg-type]

        yield make
