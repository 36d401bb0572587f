"""A cluster of real processes for the tests of programs that send and consume.

    async with dledger_mq.testing.cluster() as cluster:
        async with Producer("writers", nameservers=cluster.nameservers) as producer:
            await cluster.kill()  # the leader
            await producer.send(Message("T", b"sent to the next one"))

With pytest, a test uses the fixture `mq_cluster` (plain calls) or `trio_mq_cluster`.
"""

from dledger_mq.clusters.bridged_cluster import BlockingCluster, TrioCluster, blocking_cluster
from dledger_mq.clusters.fault_cluster import Cluster, cluster
from dledger_mq.errors import NoLeaderInTime, NotRunning

__all__ = [
    "BlockingCluster",
    "Cluster",
    "NoLeaderInTime",
    "NotRunning",
    "TrioCluster",
    "blocking_cluster",
    "cluster",
]
