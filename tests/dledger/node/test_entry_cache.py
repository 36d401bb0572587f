"""Entries on their way to the state machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.entry import Magic
from dledger.node import log_writer
from dledger.node.log_writer import MAX_RUN_ENTRIES, EntryCache
from dledger.store.log_store import Written
from dledger.store.store_config import StoreConfig
from tests.dledger.store.memory_store import MemoryStore


class Forgetful(MemoryStore):
    """A store that notes what is read back from it."""

    reads: list[tuple[int, int]]

    def read(self, first: int, last: int, max_bytes: int) -> bytes:
        """Note it, and read."""
        self.reads.append((first, last))
        return super().read(first, last, max_bytes)


@pytest.fixture
def store() -> Forgetful:
    """An empty store."""
    made = Forgetful(StoreConfig())
    made.reads = []
    return made


def append(store: MemoryStore, count: int, body: bytes = b"body") -> Written:
    """Append so many entries in one run."""
    return store.append(1, Magic.NORMAL, [body] * count)


def test_what_was_written_last_is_not_read_back(store: Forgetful) -> None:
    cache = EntryCache(store)
    for count in (1, 3, 2):
        cache.add(append(store, count).entries)
    assert [entry.index for entry in cache.take(0, 4)] == [0, 1, 2, 3, 4]
    assert [entry.index for entry in cache.take(5, 5)] == [5]
    assert store.reads == []


def test_what_was_written_before_the_cache_was_there_comes_from_the_store(store: Forgetful) -> None:
    append(store, 4)
    cache = EntryCache(store)
    cache.add(append(store, 2).entries)
    assert [entry.index for entry in cache.take(1, 5)] == [1, 2, 3]
    assert store.reads == [(1, 3)]
    assert [entry.index for entry in cache.take(4, 5)] == [4, 5]
    assert store.reads == [(1, 3)]


def test_nothing_of_a_log_that_was_cut_is_handed_out(store: Forgetful) -> None:
    cache = EntryCache(store)
    cache.add(append(store, 5, b"lost").entries)
    store.truncate_after(2)
    cache.forget()
    cache.add(append(store, 2, b"kept").entries)
    found = list(cache.take(0, 4))
    found += cache.take(len(found), 4)
    assert [entry.body for entry in found] == [b"lost"] * 3 + [b"kept"] * 2


def test_one_run_is_never_longer_than_a_turn_may_take(store: Forgetful) -> None:
    cache = EntryCache(store)
    cache.add(append(store, MAX_RUN_ENTRIES + 5).entries)
    assert len(cache.take(0, MAX_RUN_ENTRIES + 4)) == MAX_RUN_ENTRIES
    assert len(cache.take(MAX_RUN_ENTRIES, MAX_RUN_ENTRIES + 4)) == 5


def test_entries_beyond_the_room_of_the_cache_are_left_to_the_store(
    store: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MAX_CACHED_BYTES", 300)
    cache = EntryCache(store)
    for _ in range(5):
        cache.add(append(store, 1, bytes(100)).entries)
    assert [cache.take(index, 4)[0].index for index in range(5)] == [0, 1, 2, 3, 4]
    assert [first for first, _ in store.reads] == [2, 3, 4]


@given(
    runs=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    steps=st.lists(st.integers(1, 12), min_size=1),
    limit_bytes=st.integers(0, 800),
)
def test_a_full_cache_leaves_entries_out_and_hands_out_every_one(
    runs: list[int], steps: list[int], limit_bytes: int
) -> None:
    store = MemoryStore(StoreConfig())
    cache = EntryCache(store)
    next_wanted = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_writer, "MAX_CACHED_BYTES", limit_bytes)
        for at, count in enumerate(runs):
            cache.add(append(store, count, b"%d" % at).entries)
            last = min(store.last_index, next_wanted + steps[at % len(steps)] - 1)
            while next_wanted <= last:
                taken = cache.take(next_wanted, last)
                assert [entry.index for entry in taken] == list(
                    range(next_wanted, next_wanted + len(taken))
                )
                for entry in taken:
                    assert entry.pos == store.header_at(entry.index).pos
                next_wanted += len(taken)
