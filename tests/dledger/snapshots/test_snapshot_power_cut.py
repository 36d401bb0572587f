"""The power goes at any call of the disk between an append, a snapshot and the drop of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import Entry, Magic, decode_entries
from dledger.snapshots.restoring import restore_newest
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.store_config import StoreConfig
from tests.dledger.store.test_store_power_cut import LosingDisk, PowerCut
from tests.examples import seeds

CONFIG = StoreConfig(segment_bytes=512, index_segment_bytes=96, max_body_bytes=300)
KEPT = 2


class Words:
    """The bodies, and how many came through `apply`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.applied = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.bodies += [entry.body for entry in entries]
        self.applied += len(entries)
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        return iter(list(self.bodies))

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.bodies = list(chunks)


class Life:
    """One node of a group of one: what is synced is committed, and is applied."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = LosingDisk(self.random)
        self.bodies: list[bytes] = []  # everything ever appended
        self.applied = 0  # so many of them were, at least, and so must be there again
        self.snapshot = -1  # the newest that was durable
        self.replayed = 0

    def start(self) -> tuple[SegmentStore, SnapshotFolder, Words]:
        """As `open_and_restore` and the applier do."""
        store = open_store(self.disk, "/base", CONFIG, "g", "n0")
        folder = SnapshotFolder(self.disk, "/base/dledger-n0")
        folder.open()
        words = Words()
        restored = restore_newest(folder, store, words, "g")
        first = restored.header.index + 1 if restored else 0
        assert first > self.snapshot
        assert first >= store.first_index
        if restored is not None:
            store.note_committed(restored.header.index)
        while first <= store.last_index:
            entries = decode_entries(store.read(first, store.last_index, 1 << 20))
            words.apply(entries)
            first = entries[-1].index + 1
        assert len(words.bodies) >= self.applied
        assert words.bodies == self.bodies[: len(words.bodies)]
        assert words.applied <= len(self.bodies) - (self.snapshot + 1)
        del self.bodies[len(words.bodies) :]
        self.applied = len(self.bodies)
        return store, folder, words

    def live(self, store: SegmentStore, folder: SnapshotFolder, words: Words) -> None:
        """Append, save and drop until the power goes."""
        term = max(1, store.last_term) + 1
        store.begin_sync(HardState(term, "n0")).run()
        store.note_committed(store.last_index)
        while True:
            new = [b"%d " % self.random.randint(0, 9) * 20 for _ in range(6)]
            self.bodies += new
            store.append(term, Magic.NORMAL, new)
            store.begin_sync(None).run()
            self.applied = len(self.bodies)
            words.apply(decode_entries_of(store, self.applied - len(new)))
            store.note_committed(store.last_index)
            if self.random.random() < 0.7:
                self.save(store, folder, words)

    def save(self, store: SegmentStore, folder: SnapshotFolder, words: Words) -> None:
        """As the snapshotter does."""
        entry = store.header_at(store.last_index)
        header = SnapshotHeader(
            entry.index, entry.term, entry.pos, entry.size, entry.chain_crc, "g"
        )
        assert folder.write(header, words.snapshot(), lambda: False) is not None
        self.snapshot = entry.index
        folder.keep_newest(KEPT)
        indexes = folder.indexes()
        if len(indexes) < KEPT:
            return
        store.discard_before(min(indexes[-1] + 1, entry.index))
        if store.record_due and self.random.random() < 0.7:
            store.begin_sync(None).run()
        if (files := store.take_discarded()) is not None:
            files.remove()


def decode_entries_of(store: SegmentStore, first: int) -> list[Entry]:
    found: list[Entry] = []
    while first <= store.last_index:
        found += decode_entries(store.read(first, store.last_index, 1 << 20))
        first = found[-1].index + 1
    return found


@pytest.mark.parametrize("block", seeds(10, 4))
def test_whatever_step_the_power_cuts_the_state_comes_back_from_snapshot_and_log(
    block: int,
) -> None:
    discarded = 0
    for seed in range(block * 20, block * 20 + 20):
        life = Life(seed)
        for _ in range(4):
            life.disk.steps_left = life.random.randint(5, 220)
            try:
                store, folder, words = life.start()
                life.live(store, folder, words)
            except PowerCut:
                life.disk.cut_power()
        life.disk.steps_left = -1
        store, _, _ = life.start()
        discarded += store.first_index
    assert discarded > 0
