"""The source and the tables by `spark-submit`, on a cluster that has the wheel only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")
pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")

import dledger
from dledger import blocking
from dledger.free_ports import free_addresses
from dledger_spark.errors import FolderNotShared, JavaMissing
from dledger_spark.log.folder_log import FolderOrigin
from dledger_spark.tables.table_home import TableHome
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies
from tests.dledger_spark.spark_cluster import SparkCluster, spark_cluster, until
from tests.dledger_spark.test_spark_table_updates import rows_of

GROUP = "orders"
COUNT = 4000
TOPICS, QUEUES = ("bills", "clicks", "orders"), 2
TIMEOUT_S = 120


def bodies() -> BrokerBodies:
    found = BrokerBodies()
    for topic in TOPICS:
        found.put_topic(topic)
    for at in range(COUNT):
        body = b"%d " % at + b"x" * 300
        record = MessageRecord(
            topic=TOPICS[at % 3], queue_id=at % QUEUES, body=body, store_timestamp=10**12 + at
        )
        found.message(record)
    return found


def expected() -> list[list[Any]]:
    ends = dict.fromkeys([(topic, queue) for topic in TOPICS for queue in range(QUEUES)], 0)
    rows = []
    for at in range(COUNT):
        key = TOPICS[at % 3], at % QUEUES
        rows.append([*key, ends[key], f"{at} " + "x" * 300])
        ends[key] += 1
    return sorted(rows)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    try:
        with spark_cluster(folder) as running:
            yield running
    except JavaMissing as missing:
        pytest.skip(str(missing))


def running_group(base: Path, stack: ExitStack) -> str:
    """Three members with the log in this process; their addresses."""
    peers = {f"n{at}": address for at, address in enumerate(free_addresses(3))}
    nodes = [
        stack.enter_context(
            blocking.open_node(
                dledger.NodeConfig(group=GROUP, node_id=node, peers=peers, data_dir=base),
                dledger.LogOnly(),
            )
        )
        for node in peers
    ]
    addresses = ",".join(peers.values())
    log = stack.enter_context(blocking.connect(addresses, group=GROUP))
    log.append(b"the group has a leader", timeout_s=TIMEOUT_S)
    leader = nodes[list(peers).index(str(log.status()["leader"]))]
    leader.append_many(bodies().bodies, timeout_s=TIMEOUT_S)
    return addresses


@pytest.mark.long
@pytest.mark.spark
def test_a_cluster_reads_each_row_once_from_both_places_though_a_worker_is_killed(
    cluster: SparkCluster, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_log(bodies().bodies, group=GROUP, segment_bytes=200_000)
    job_folder = tmp_path / "job"
    job_folder.mkdir()
    with ExitStack() as stack:
        addresses = running_group(tmp_path / "members", stack)
        ways = {
            "folder": {"path": str(path)},
            "network": {"bootstrap": addresses, "group": GROUP},
        }
        asked = job_folder / "asked.json"
        asked.write_text(json.dumps({"ways": ways}))
        job = cluster.submit(Path(__file__).with_name("cluster_job.py"), str(asked))

        def is_in_the_middle() -> bool:
            return len(list(job_folder.glob("started-*"))) == 2 or job.poll() is not None

        until(is_in_the_middle, TIMEOUT_S * 10)
        if job.poll() is None:
            cluster.kill_worker()
            (job_folder / "worker-is-killed").touch()
        cluster.finish(job)
    found = json.loads((job_folder / "found.json").read_text())
    assert found["folder"]["batch"] == found["folder"]["stream"] == expected()
    assert found["network"]["batch"] == found["network"]["stream"] == expected()
    assert found["folder"]["entries"] == [[0, COUNT + len(TOPICS) - 1]]
    assert found["killed"] == expected()
    assert len(list((job_folder / "killed").iterdir())) > 2  # batches
    assert found["executors"] == [f"./{cluster.shipped.name}/dledger_spark/__init__.py"]
    (said,) = found["kept from executors"]
    assert "share the folder with all executors under the same path" in said
    for way in ways:
        tables = rows_of(TableHome(f"{job_folder / way}-tables"))
        stored = [
            [row["topic"], row["queue"], row["offset"], row["body"].decode()]
            for row in tables["messages"]
        ]
        assert sorted(stored) == expected()
        indexes = sorted(row["index"] for row in tables["entries"])
        assert indexes == list(range(len(indexes)))


def test_a_task_that_does_not_see_the_folder_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "dledger-n0"
    with pytest.raises(FolderNotShared, match=r"is not on .*: share the folder") as caught:
        FolderOrigin(str(path)).open()
    assert "\n" not in str(caught.value)
    path.mkdir()  # a mount point without what belongs there
    with pytest.raises(FolderNotShared):
        FolderOrigin(str(path)).open()
