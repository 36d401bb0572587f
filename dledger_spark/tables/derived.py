"""The tables that are a query over the facts: one file of SQL each.

Spark and DuckDB both understand the SQL; `duckdb_engine` adds the few functions of Spark's that
have other names in DuckDB. Each table is a function of the facts. `refresh` computes what new facts
change in it, and replaces that in one commit; a run that is killed leaves the table as it was.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final

from dledger_spark.facts.fact_schemas import FACTS

# Which offsets lie in which minutes: what finds the few messages that another table needs.
QUEUE_MINUTES: Final = "queue_minutes"
# In the order in which they are made; none depends on another one but that of minutes of queues.
DERIVED: Final = (
    "traffic",
    "consumer_lag",
    "latency",
    "retries",
    "dead_letters",
    "transactions",
    "delays",
    "pops",
    "elections",
    "hot_keys",
    "audit",
)
# All that have files.
STORED: Final = (QUEUE_MINUTES, *DERIVED)
# Engines compute these from the facts when a query reads them.
VIEWS: Final = ("trace",)


@cache
def query(table: str) -> str:
    return (files("dledger_spark.tables") / "sql" / f"{table}.sql").read_text(encoding="utf-8")


def view_over(name: str, called: Callable[[str], str]) -> str:
    """Return the query of one of `VIEWS` on one line, over facts that are called otherwise.

    `called` returns what a table of facts is called in SQL.
    """
    lines = (line.partition("--")[0] for line in query(name).splitlines())
    text = " ".join(" ".join(lines).split())
    rest = text.removeprefix("with ")
    facts = [f"{one} as (select * from {called(one)})" for one in FACTS if _reads(text, one)]
    return f"with {', '.join(facts)}{', ' if rest != text else ' '}{rest}"


def _reads(text: str, table: str) -> bool:
    return re.search(rf"\b(?:from|join) {table}\b", text) is not None
