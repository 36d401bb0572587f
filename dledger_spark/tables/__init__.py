"""Analytics tables made from the log, as Delta tables in one folder.

* `update.update_tables`: writes the facts of the entries that are new, each exactly once.
* `derived`: the tables that are a query over the facts.
* `catalog`: the tables by name, for DuckDB, for Spark and for everything that reads Parquet.
"""
