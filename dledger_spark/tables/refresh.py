"""Makes the derived tables anew from the facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltalake import CommitProperties, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from dledger_spark.errors import TablesInvalid
from dledger_spark.tables.derived import DERIVED, query
from dledger_spark.tables.engine import Engine
from dledger_spark.tables.table_home import TableHome


def refresh(
    home: TableHome,
    engine: Engine,
    through: dict[str, Any],
    on_table: Callable[[str], None] = lambda _table: None,
) -> dict[str, int]:
    """Replace each derived table, in a commit of its own. Returns their numbers of rows.

    Args:
        home: the folder, `held` by the caller.
        engine: knows the tables of facts.
        through: the last entry of each log; the commits note it.
        on_table: called with the name of each table before it is made.

    Raises:
        QueryFailed: a table cannot be computed.
        TablesInvalid: a table cannot be written.
    """
    rows = {}
    for name in DERIVED:
        on_table(name)
        made = engine.query(query(name))
        try:
            write_deltalake(
                home.derived_path(name),
                made,
                mode="overwrite",
                schema_mode="overwrite",
                writer_properties=WriterProperties(compression="ZSTD"),
                commit_properties=CommitProperties(custom_metadata={"through": str(through)}),
            )
        except (DeltaError, OSError) as error:
            raise TablesInvalid(home.derived_path(name), f"cannot be written: {error}") from None
        rows[name] = len(made)
    return rows
