"""`make bench-spark`: the log in Spark, beside Spark reading the same rows from Parquet."""
