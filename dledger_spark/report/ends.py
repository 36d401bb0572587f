"""Where the tables of facts end."""

from __future__ import annotations

from collections.abc import Iterable

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables.catalog import CatalogTable
from dledger_spark.tables.fact_table import app_of


def ends(
    tables: Iterable[CatalogTable], groups: Iterable[str | None]
) -> dict[str, dict[str, int | None]]:
    """The entry behind those that each table of facts has.

    Args:
        tables: of a folder.
        groups: of the logs; None is a log without a name.

    Returns:
        By log ("" for one without a name) and by table; None: the table has no entry of it.
    """
    facts = [table for table in tables if table.name in FACTS]
    return {
        group or "": {one.name: one.table.transaction_version(app_of(group)) for one in facts}
        for group in groups
    }
