"""The logs that tables on a cluster are made of."""

from __future__ import annotations

from pathlib import Path

from bench.spark.cluster_tables import write_group_logs
from dledger_spark.log.folder_log import open_folders


def test_each_group_has_a_log_of_its_own_with_the_same_entries(tmp_path: Path) -> None:
    told: list[str] = []
    write_group_logs(tmp_path, 2, 1, told.append)
    write_group_logs(tmp_path, 3, 1, told.append)
    logs = open_folders(str(tmp_path))
    assert [one.group for one in logs] == ["bench000", "bench001", "bench002"]
    assert len({(one.first_index, one.committed) for one in logs}) == 1
    assert (logs[0].committed or 0) > 2000
    assert len(told) == 3  # what is there is not written again
