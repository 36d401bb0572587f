"""Removes what the tables of a folder no longer need."""

import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables.delta_files import delete_old_files, delta_failures, keep_for, table_at
from dledger_spark.tables.derived import STORED
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import next_index


class Pruned(NamedTuple):
    """The result: files and bytes on the disk before and after."""

    files_before: int
    bytes_before: int
    files: int
    bytes: int


def prune(home: TableHome, on_table: Callable[[str], None] = lambda _table: None) -> Pruned:
    """Remove files of earlier versions, old states of the fold, and what killed runs left behind.

    The caller has `held` the folder. Files of tables are kept for `kept_hours`, and so is Delta's
    log before the last checkpoint. Raises TablesInvalid, OutputFailed.
    """
    before = _size(home.path)
    for group in home.groups():
        there = next_index(home, group)
        if there is not None:
            home.drop_states_before(group, there)
    shutil.rmtree(home.spill_path, ignore_errors=True)
    for path in (*map(home.fact_path, FACTS), *map(home.derived_path, STORED)):
        table = table_at(path)
        if table is None:
            continue
        on_table(path)
        with delta_failures(path, "cannot be written"):
            keep_for(path, table, home.kept_hours)
            delete_old_files(path, table, home.kept_hours)
            table.cleanup_metadata()
    return Pruned(*before, *_size(home.path))


def _size(folder: str) -> tuple[int, int]:
    """Return the number of files below a folder, and their bytes."""
    files, size = 0, 0
    for above, _folders, names in os.walk(folder):
        for name in names:
            files += 1
            size += os.lstat(f"{above}/{name}").st_size
    return files, size
