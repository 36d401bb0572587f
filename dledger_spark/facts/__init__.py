"""The facts of a broker's log, as rows: read once, in the log's order, without Spark.

* `log_fold.LogFold`: batches of entries in, rows of every table of facts out.
* `fact_schemas`: the columns of these tables.
"""
