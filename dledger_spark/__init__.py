"""Replays the committed log into tables: log files -> Arrow batches -> Spark.

* `scan.arrow_batches(path, first, last)`: entries as Arrow batches; needs pyarrow only, no Spark.
* `source.DledgerDataSource`: `spark.read.format("dledger")` and `spark.readStream`, after
  `spark.dataSource.register`; over files, or over the network from a running group.
* `session.local_session()`: a Spark on this machine that has the source registered.
* `dledger-spark` (`python -m dledger_spark`): replay, count and show in a terminal.

The package never writes to a log or locks it, and reads only committed entries unless a caller asks
for all (`end`). The packages it needs come with `pip install 'dledger[spark]'`.
"""
