"""`python -m dledger_spark`, and the command `dledger-spark`."""

from dledger_spark.commands.spark_commands import main

if __name__ == "__main__":
    main()
