"""Writes the consume queues of a log as its broker does, up to a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from broker.features import empty_state
from broker.log.fold import fold
from broker.store.consume_queues import ConsumeQueues
from dledger.core.hard_state import HardState
from dledger.entry import Entry
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig


def write_entries(base: Path, entries: Sequence[Entry]) -> Path:
    """Write a node's log of a group, all of it committed; the folder of the node."""
    config = StoreConfig(1 << 16, 1024, max_body_bytes=1 << 14, spare_segments=0)
    store = open_store(OsDisk(), str(base), config, "g", "n0")
    try:
        for term, of_term in groupby(entries, lambda entry: entry.term):
            store.append(term, 1, [entry.body for entry in of_term])
        term = entries[-1].term if entries else 1
        store.begin_sync(HardState(term, None, store.last_index)).run()
        store.note_committed(store.last_index)
        store.save_committed()
    finally:
        store.close()
    return base / "dledger-n0"


def write_queues(
    base: Path, entries: Sequence[Entry], synced: int, *, units_per_file: int = 5
) -> ConsumeQueues:
    """Write queues beside a log.

    Args:
        base: the folder above that of the log.
        entries: all of the log.
        synced: of these, so many are before the snapshot; the rest is in memory in part.
        units_per_file: messages in a file of a queue.
    """
    queues = ConsumeQueues(base / "consumequeue", units_per_file=units_per_file, write_units=3)
    state = empty_state()
    for done, entry in enumerate(entries):
        if done == synced:
            queues.sync_due(entry.pos).run()
        folded = fold(state, [entry])
        for topic in folded.deleted_topics:
            queues.delete_topic(topic)
        queues.append(folded.arrivals)
    if synced >= len(entries) and entries:
        queues.sync_due(entries[-1].body_pos + len(entries[-1].body)).run()
    return queues
