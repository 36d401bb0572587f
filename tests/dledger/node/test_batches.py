"""The pushes that are cut from the newest entries, and where they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.entry import HEADER_BYTES, Magic
from dledger.node import log_writer
from dledger.node.log_writer import Batches
from dledger.store.store_config import StoreConfig
from tests.dledger.store.memory_store import MemoryStore

MAX_BYTES = 1000


class Watched(MemoryStore):
    """A store that notes what is read back from it."""

    def __init__(self, config: StoreConfig) -> None:
        super().__init__(config)
        self.reads: list[tuple[int, int]] = []

    def read_run(self, first: int, last: int, max_bytes: int) -> tuple[int, bytes]:
        """Note it, and read."""
        self.reads.append((first, last))
        return super().read_run(first, last, max_bytes)


class Leader:
    """A store and the batches over it."""

    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        self.store = Watched(StoreConfig(segment_bytes=segment_bytes, max_body_bytes=2048))
        self.batches = Batches(self.store, MAX_BYTES)

    def append(self, *sizes: int) -> None:
        """One proposal with bodies of these sizes."""
        written = self.store.append(1, Magic.NORMAL, [bytes(size) for size in sizes])
        if written.raw is not None:
            self.batches.keep(written.entries, written.raw)

    def stored(self, first: int, last: int) -> bytes:
        """What the store has of these entries."""
        return MemoryStore.read_run(self.store, first, last, MAX_BYTES)[1]

    def push(self, first: int) -> tuple[int, bytes]:
        """The next push from there: where it ends, and its bytes."""
        end = self.batches.batch_end(first, self.store.last_index)
        return end, self.batches.payload(first, end)


def test_a_push_of_one_large_entry_counts_as_many() -> None:
    leader = Leader()
    leader.append(10, 20, MAX_BYTES - HEADER_BYTES, MAX_BYTES, 2 * MAX_BYTES)
    weights = []
    first = 0
    while first <= leader.store.last_index:
        end, _ = leader.push(first)
        weights.append((first, leader.batches.batch_weight(first)))
        first = end + 1
    assert weights == [(0, 1), (2, 1), (3, 2), (4, 3)]


def test_what_gathered_in_several_proposals_goes_in_one_push_and_is_not_read_back() -> None:
    leader = Leader()
    for _ in range(3):
        leader.append(10, 20)
    assert leader.push(0) == (5, leader.stored(0, 5))
    assert leader.store.reads == []


def test_a_long_proposal_is_cut_into_pushes_without_being_read_back() -> None:
    leader = Leader()
    leader.append(*[152] * 12)  # 200 bytes each, five in a push
    assert [leader.push(first)[0] for first in (0, 5, 10)] == [4, 9, 11]
    assert leader.store.reads == []


def test_an_entry_larger_than_a_push_goes_alone() -> None:
    leader = Leader()
    leader.append(10, 1500, 10)
    assert [leader.push(first)[0] for first in (0, 1, 2)] == [0, 1, 2]


def test_no_push_goes_across_the_beginning_of_a_segment() -> None:
    leader = Leader(segment_bytes=4096)
    for _ in range(30):
        leader.append(152)
    first = 0
    while first <= leader.store.last_index:
        end, raw = leader.push(first)
        assert raw == leader.stored(first, end)
        first = end + 1


def test_what_all_peers_were_sent_is_read_back_if_one_lost_it() -> None:
    leader = Leader()
    for _ in range(3):
        leader.append(10)
    leader.batches.sent(2)
    assert leader.push(2)[0] == 2
    assert leader.store.reads == []
    assert leader.push(0) == (2, leader.stored(0, 2))
    assert leader.store.reads == [(0, 2)]


@given(
    proposals=st.lists(st.lists(st.integers(0, 700), min_size=1, max_size=8), min_size=1),
    sent=st.lists(st.integers(0, 40), max_size=3),
    limit=st.sampled_from([500, 5000, 1 << 20]),
)
def test_a_push_holds_what_the_store_has_and_no_more_than_it_would_have_cut(
    proposals: list[list[int]], sent: list[int], limit: int
) -> None:
    leader, plain = Leader(4096), Leader(4096)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_writer, "MAX_NEWEST_BYTES", limit)
        for proposal in proposals:
            leader.append(*proposal)
            plain.store.append(1, Magic.NORMAL, [bytes(size) for size in proposal])
        for index in sent:
            leader.batches.sent(index)
        for first in range(leader.store.last_index + 1):
            longest, _ = plain.store.read_run(first, plain.store.last_index, MAX_BYTES)
            end, raw = leader.push(first)
            # What lies in two segments is not at hand, so a push may end before it.
            assert first <= end <= longest
            assert raw == plain.stored(first, end)
