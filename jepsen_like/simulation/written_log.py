"""Reads a store's bytes: chain sums, and changes of the group."""

from __future__ import annotations

from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.entry import Magic, decode_entries, decode_header
from dledger.store.batch import verify_batch
from dledger.store.segment_store import SegmentStore

# Read from the store in one go: more than any simulated segment holds.
READ_BYTES = 1 << 20


def term_chains(raw: bytes) -> list[tuple[int, int]]:
    """Return term and chain sum of every entry of a run of whole, adjacent entries."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(raw):
        header = decode_header(raw, at)
        found.append((header.term, header.chain_crc))
        at += header.size
    return found


def log_chains(store: SegmentStore) -> list[tuple[int, int]]:
    """Return term and chain sum of every entry of a store. Raises BatchInvalid if one is broken."""
    found: list[tuple[int, int]] = []
    begin = store.first_index
    term, chain = store.term_at(begin - 1), store.chain_at(begin - 1)
    while (first := begin + len(found)) <= store.last_index:
        raw = store.read(first, store.last_index, READ_BYTES)
        verify_batch(raw, first, chain, term)
        found += term_chains(raw)
        term, chain = found[-1]
    return found


def log_changes(
    store: SegmentStore, first: int, last: int
) -> list[tuple[int, NumberedConfiguration]]:
    """Return the changes of the group among the entries first..last of a store."""
    return [
        (index, decode_configuration(decode_entries(store.read(index, index, 1))[0].body))
        for index in range(first, last + 1)
        if store.header_at(index).magic == Magic.CONFIGURATION
    ]
