"""Reads of many records at once give what one read for each would."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.limits import MAX_PULL_BYTES
from broker.messages.record_facts import UNIT
from broker.store.message_reader import choose
from broker.store.record_runs import read_records
from dledger import OutsideLog

CONTENT = bytes(range(256)) * 4096

# Between records; those of a batch lie next to each other.
GAPS = st.just(0) | st.integers(0, 20_000)


class SegmentedLog:
    """A log of known bytes in segments; counts its reads."""

    def __init__(self, segment_bytes: int = len(CONTENT)) -> None:
        self.segment_bytes = segment_bytes
        self.reads = 0

    def read_bytes(self, pos: int, size: int) -> bytes:
        self.reads += 1
        last = min(len(CONTENT), pos - pos % self.segment_bytes + self.segment_bytes) - 1
        if pos + size - 1 > last:
            raise OutsideLog("byte", pos + size - 1, 0, last)
        return CONTENT[pos : pos + size]


def pieces_at(log: SegmentedLog, places: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
    return read_records(log.read_bytes, [at for at, _ in places], [size for _, size in places])


def placed(gaps_and_sizes: Sequence[tuple[int, int]], segment_bytes: int) -> list[tuple[int, int]]:
    """Records behind one another with gaps; none lies in two segments."""
    places: list[tuple[int, int]] = []
    at = 0
    for gap, size in gaps_and_sizes:
        at += gap
        if at // segment_bytes != (at + size - 1) // segment_bytes:
            at += segment_bytes - at % segment_bytes
        places.append((at, size))
        at += size
    return places


@given(
    st.lists(st.tuples(GAPS, st.integers(1, 9_000)), max_size=40),
    st.sampled_from([10_000, 65_536, 1 << 20]),
)
def test_records_are_those_that_single_reads_give(
    gaps_and_sizes: list[tuple[int, int]], segment_bytes: int
) -> None:
    log = SegmentedLog(segment_bytes)
    places = placed(gaps_and_sizes, segment_bytes)
    while places and sum(places[-1]) > len(CONTENT):
        places.pop()
    found = pieces_at(log, places)
    assert b"".join(found) == b"".join([CONTENT[at : at + size] for at, size in places])


@pytest.mark.parametrize(
    ("gaps", "pieces"),
    [([0, 0, 0, 0], 1), ([48, 0, 0, 0], 1), ([0, 0, 48, 0], 2), ([0, 9, 9, 0], 3)],
)
def test_records_next_to_each_other_are_one_piece(gaps: list[int], pieces: int) -> None:
    log = SegmentedLog()
    assert len(pieces_at(log, placed([(gap, 350) for gap in gaps], 1 << 20))) == pieces
    assert log.reads == 1


@pytest.mark.feature("F20")
def test_records_of_interleaved_queues_are_read_at_once() -> None:
    log = SegmentedLog()
    assert len(pieces_at(log, [(at * 3_000, 350) for at in range(32)])) == 32
    assert log.reads == 1


def test_records_that_lie_far_apart_are_read_one_by_one() -> None:
    log = SegmentedLog()
    pieces_at(log, [(at * 100_000, 350) for at in range(8)])
    assert log.reads == 8


def test_a_record_outside_of_the_log_is_told() -> None:
    with pytest.raises(OutsideLog):
        pieces_at(SegmentedLog(), [(0, 100), (len(CONTENT) - 50, 100)])


def chosen_one_by_one(
    units: Sequence[tuple[int, int, int]], offset: int, most: int, codes: set[int] | None
) -> tuple[list[tuple[int, int]], int]:
    """RocketMQ's loop: a message more, unless there are enough or too many bytes."""
    chosen: list[tuple[int, int]] = []
    for place, size, code in units:
        if codes is None or code in codes:
            if chosen and (
                sum([one for _, one in chosen]) + size > MAX_PULL_BYTES or len(chosen) >= most
            ):
                break
            chosen.append((place, size))
        offset += 1
    return chosen, offset


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 150_000), st.integers(0, 2)), max_size=9),
    st.integers(1, 10),
    st.sampled_from([None, {0}, {1, 2}, {7}]),
)
def test_a_pull_gets_what_fits_into_its_limits(
    units: list[tuple[int, int, int]], most: int, codes: set[int] | None
) -> None:
    run = b"".join([UNIT.pack(*unit) for unit in units])
    if codes is None:
        units = units[:most]
    places, sizes, next_offset = choose(run, 5, most, codes)
    found = list(zip(places, sizes, strict=True)), next_offset
    assert found == chosen_one_by_one(units, 5, most, codes)
