"""`dledger-spark sql`: a query over the tables."""

from __future__ import annotations

import click

from dledger_spark.rows import json_line, print_rows
from dledger_spark.tables_command import engine_option, memory_option, opened
from dledger_spark.terminal import session_options


@click.command()
@click.argument("query")
@click.option("--tables", "out", required=True, metavar="OUT", help="Folder of the tables.")
@engine_option("What answers the query.")
@memory_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@session_options
def sql(
    query: str,
    out: str,
    engine: str,
    memory_mib: int,
    as_json: bool,
    cores: int | None,
    java: str,
) -> None:
    """Print the rows of a query over the tables that `dledger-spark tables` has made.

    \b
      dledger-spark sql --tables OUT "select topic, sum(messages) from traffic group by 1"
      dledger-spark sql --tables OUT "select * from trace where unique_key = 'K' order by time"
      dledger-spark sql --tables OUT "show tables"
      dledger-spark sql --tables OUT "describe consumer_lag"

    Times are in UTC. The column "offset" needs quotes or its table's name before it (m.offset),
    because that is a word of SQL as well.
    """  # noqa: D301 - click's mark, a backspace
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    with opened(TableHome(out), engine, memory_mib, cores, java, derived=True) as over:
        found = over.query(query)
    names = found.schema.names
    listed = found.to_pylist(maps_as_pydicts="lossy")  # the last value of a name counts
    if as_json:
        for row in listed:
            click.echo(json_line(row))
    else:
        rows = [[row[name] for name in names] for row in listed]
        print_rows(f"{len(rows)} rows", names, rows)
