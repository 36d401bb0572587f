"""What is in a store, entry by entry."""

from __future__ import annotations

from dledger.entry import Entry, decode_entries
from dledger.store.segment_store import SegmentStore


def read_all(store: SegmentStore) -> list[Entry]:
    """Every entry, in order."""
    found: list[Entry] = []
    index = store.first_index
    while index <= store.last_index:
        found += decode_entries(store.read(index, store.last_index, 1 << 20))
        index = found[-1].index + 1
    return found
