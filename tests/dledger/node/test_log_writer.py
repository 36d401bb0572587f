"""After a cut, nothing of what was cut is at hand any more."""

from __future__ import annotations

from dledger.core.entry_handler import Truncation
from dledger.entry import Magic, decode_entries
from dledger.node.log_writer import Batches, LogWriter
from tests.dledger.store.memory_store import MemoryStore


def written_twice() -> tuple[LogWriter, Batches]:
    """Entries 0 to 2 were written, 1 and 2 cut, and others written in their place."""
    store = MemoryStore()
    batches = Batches(store, 1 << 20)
    writer = LogWriter(store, batches)
    for first in range(3):
        writer.append(1, Magic.NORMAL, [b"old"], first)
    batches.batch_end(2, 2)  # a peer was sent it
    writer.carry_out(Truncation(0))
    writer.append(2, Magic.NORMAL, [b"new", b"new"], 1)
    return writer, batches


def test_the_state_machine_gets_nothing_that_was_cut() -> None:
    writer, _ = written_twice()
    taken = list(writer.cache.take(0, 2))
    while len(taken) < 3:
        taken += writer.cache.take(len(taken), 2)
    assert [(entry.term, entry.body) for entry in taken] == [(1, b"old"), (2, b"new"), (2, b"new")]


def test_peers_are_sent_nothing_that_was_cut() -> None:
    _, batches = written_twice()
    end = batches.batch_end(2, 2)
    [entry] = decode_entries(batches.payload(2, end))
    assert (entry.index, entry.term, entry.body) == (2, 2, b"new")
