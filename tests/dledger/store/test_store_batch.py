"""What a follower refuses of a run of entries."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.ledger_view import TermRun
from dledger.entry import HEADER, HEADER_BYTES, LARGEST_BODY_BYTES, decode_entries, encode
from dledger.errors import BatchInvalid, MessageMalformed
from dledger.store.batch import verify_batch
from dledger.store.index_unit import UNIT
from dledger.store.placement import LogEnd, place


def run_of(terms: list[int], first: int = 10, pos: int = 1000, chain: int = 77) -> bytes:
    entries = []
    for offset, term in enumerate(terms):
        entry, chain = encode(1, first + offset, term, pos, chain, b"body %d" % offset)
        entries.append(entry)
        pos += len(entry)
    return b"".join(entries)


def javas(count: int, chain: int = 0, body_sum: int = 0, channel: int = 0) -> bytes:
    size = HEADER_BYTES + 4
    headers = (
        HEADER.pack(1, size, i, 1, i * size, channel, chain, body_sum, 4) for i in range(count)
    )
    return b"".join(header + b"java" for header in headers)


def test_the_facts_of_a_good_run() -> None:
    raw = run_of([3, 3, 5, 5, 9])
    facts = verify_batch(raw, 10, 77, 3)
    assert (facts.first_index, facts.last_index) == (10, 14)
    assert facts.term_runs == (TermRun(3, 10), TermRun(5, 12), TermRun(9, 14))
    assert (facts.first_pos, facts.end_pos) == (1000, 1000 + len(raw))
    units = list(UNIT.iter_unpack(facts.index_units))
    assert [unit[3:] for unit in units] == [(10, 3), (11, 3), (12, 5), (13, 5), (14, 9)]
    assert units[1][:3] == (1, 1054, 54)
    last = HEADER.unpack_from(raw, len(raw) - 54)
    assert facts.last_chain == last[6]


def test_the_leaders_loop_and_the_single_encoder_make_the_same_bytes() -> None:
    bodies = [b"one", b"", b"three" * 100]
    placed = place(4, 1, bodies, LogEnd(10, 1000, 77), 1 << 20, 1 << 16)
    pos, chain, entries = 1000, 77, []
    for index, body in enumerate(bodies, 10):
        entry, chain = encode(1, index, 4, pos, chain, body)
        entries.append(entry)
        pos += len(entry)
    assert placed.runs == [(1000, b"".join(entries))]
    assert (placed.end_pos, placed.last_chain) == (pos, chain)
    facts = verify_batch(b"".join(entries), 10, 77, 0)
    assert facts.index_units == placed.index_units
    assert facts.entries == (placed.entries,)
    assert placed.entries == decode_entries(b"".join(entries))


@pytest.mark.parametrize(
    ("first", "chain", "term", "problem"),
    [
        (11, 77, 3, "index 10"),
        (9, 77, 3, "index 10"),
        (10, 78, 3, "chain"),
        (10, 0, 3, "chain"),
        (10, 77, 4, "term 3"),
    ],
)
def test_a_run_that_does_not_follow_is_refused(
    first: int, chain: int, term: int, problem: str
) -> None:
    with pytest.raises(BatchInvalid, match=problem):
        verify_batch(run_of([3, 3, 5]), first, chain, term)


def test_an_unknown_previous_chain_leaves_only_the_first_chain_unchecked() -> None:
    raw = bytearray(run_of([3, 3]))
    verify_batch(bytes(raw), 10, None, 3)
    raw[54 + 36] ^= 1
    with pytest.raises(BatchInvalid, match="entry 11"):
        verify_batch(bytes(raw), 10, None, 3)


def test_terms_must_not_decrease_within_a_run() -> None:
    with pytest.raises(BatchInvalid, match="term 4 after term 5"):
        verify_batch(run_of([3, 5, 4]), 10, 77, 3)


def test_every_flipped_byte_is_noticed() -> None:
    raw = run_of([3, 3, 4])
    for at in range(len(raw)):
        broken = raw[:at] + bytes((raw[at] ^ 0x40,)) + raw[at + 1 :]
        with pytest.raises(BatchInvalid):
            verify_batch(broken, 10, 77, 3)


def test_every_cut_is_noticed() -> None:
    raw = run_of([3, 3])
    for kept in range(len(raw)):
        if kept == 54:
            assert verify_batch(raw[:kept], 10, 77, 3).last_index == 10
            continue
        with pytest.raises(BatchInvalid):
            verify_batch(raw[:kept], 10, 77, 3)


def test_entries_of_java_have_no_sums_to_check() -> None:
    facts = verify_batch(javas(5, channel=3), 0, 0, -1)
    assert (facts.last_index, facts.last_chain) == (4, 0)
    entry, _ = encode(1, 5, 2, 5 * 52, 0, b"ours")
    assert verify_batch(javas(5) + entry, 0, 0, -1).last_index == 5


def test_a_sum_that_is_there_is_checked_whoever_wrote_it() -> None:
    verify_batch(javas(1, body_sum=crc32(b"java")), 0, 0, -1)
    for raw in (javas(1, body_sum=5), javas(1, chain=5)):
        with pytest.raises(BatchInvalid):
            verify_batch(raw, 0, 0, -1)


def test_a_size_beyond_the_format_is_refused_before_anything_is_read_there() -> None:
    for size in (LARGEST_BODY_BYTES + HEADER_BYTES + 1, 2**31 - 1, -1, 0, 47):
        body_size = (size - HEADER_BYTES) % 2**32
        raw = HEADER.pack(1, size, 0, 1, 0, 0, 0, 0, body_size) + bytes(100)
        with pytest.raises(BatchInvalid, match="size"):
            verify_batch(raw, 0, 0, -1)


def test_an_invalid_batch_is_a_malformed_message() -> None:
    assert issubclass(BatchInvalid, MessageMalformed)
    assert not BatchInvalid("x").retry_safe


@given(st.binary(max_size=300))
def test_any_bytes_are_a_run_or_refused(raw: bytes) -> None:
    with pytest.raises(BatchInvalid):
        verify_batch(raw, 0, 0, -1)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_what_is_placed_is_verified(bodies: list[bytes], chain: int) -> None:
    placed = place(1, 1, bodies, LogEnd(0, 0, chain), 1 << 20, 100)
    facts = verify_batch(placed.runs[0][1], 0, chain, -1)
    assert facts.last_chain == placed.last_chain
    assert struct.unpack(">I", placed.runs[0][1][36:40])[0] != 0


@pytest.mark.parametrize("magic", [-1, 0, 4])
@pytest.mark.parametrize("term", [-1, 0])
def test_a_run_that_begins_with_no_kind_of_entry_is_refused(magic: int, term: int) -> None:
    raw = HEADER.pack(magic, HEADER_BYTES, 10, term, 1000, 0, 0, 0, 0)
    with pytest.raises(BatchInvalid, match="magic"):
        verify_batch(raw, 10, None, -1)
