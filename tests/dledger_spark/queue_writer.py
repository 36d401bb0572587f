"""Writes the consume queues of a log as its broker does, up to a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from broker.features import empty_state
from broker.log.fold import fold
from broker.store.consume_queues import ConsumeQueues
from dledger.entry import Entry


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
