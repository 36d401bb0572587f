"""What `spark-submit` runs in test_spark_cluster_tables.py: tables of several logs, by tasks.

It is run with the path of a file of JSON: the folder of the logs, that of the tables, the bytes of
a round and of a range. Before each round it writes its number to the file `rounds` beside that;
while a file `hold-NUMBER` exists there it waits.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dledger_spark.log.folder_log import open_folders
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.spark_engine import SparkEngine
from dledger_spark.tables.spark_update import update_on_spark
from dledger_spark.tables.table_home import TableHome

HELD_MAX_S = 600


def main() -> None:
    asked = Path(sys.argv[1])
    told: dict[str, Any] = json.loads(asked.read_text())
    spark = SparkSession.builder.getOrCreate()
    home = TableHome(told["out"])
    rounds = 0

    def on_round() -> None:
        nonlocal rounds
        rounds += 1
        (asked.parent / "rounds").write_text(str(rounds))
        give_up_at = time.monotonic() + HELD_MAX_S
        while (asked.parent / f"hold-{rounds}").exists():
            assert time.monotonic() < give_up_at, "nothing ended the wait"
            time.sleep(0.1)

    def opens(tables: Any) -> AbstractContextManager[Any]:
        return nullcontext(SparkEngine(spark, tables, home.spill_path))

    with home.held():
        update_on_spark(spark, home, open_folders(told["logs"]), on_round=on_round, **told["sizes"])
        if told["derived"]:
            refresh(home, opens, {})
    (asked.parent / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main()
