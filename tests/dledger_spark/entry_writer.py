"""Writes entries that a test has made into the log of a node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from dledger.core.hard_state import HardState
from dledger.entry import Entry
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig


def write_entries(
    base: Path,
    entries: Sequence[Entry],
    config: StoreConfig,
    group: str = "g",
    committed: int | None = None,
) -> Path:
    """Append entries, each in its term, and sync them; the folder of the node.

    All are committed, unless `committed` names the last one that is. They lie where they say if
    they have done so in one segment before.
    """
    store = open_store(OsDisk(), str(base), config, group, "n0")
    try:
        for term, of_term in groupby(entries, lambda entry: entry.term):
            store.append(term, 1, [entry.body for entry in of_term])
        end = store.last_index if committed is None else committed
        store.begin_sync(HardState(entries[-1].term, None, end)).run()
        store.note_committed(end)
        store.save_committed()
    finally:
        store.close()
    return base / "dledger-n0"
