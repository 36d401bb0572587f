from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger_spark.entries.entry_sums import joined_sum


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=40))
@example([b"one", b"", b"two"])
def test_the_sums_of_pieces_give_the_sum_of_all(pieces: list[bytes]) -> None:
    assert join(pieces) == crc32(b"".join(pieces))


@pytest.mark.parametrize("length", [1 << 8, 1 << 16, 1 << 20, (1 << 24) + 3])
def test_pieces_far_from_the_end_count_as_well(length: int) -> None:
    pieces = [b"first", bytes(length), b"last"]
    assert join(pieces) == crc32(b"".join(pieces))


def test_one_wrong_sum_shows_wherever_it_is() -> None:
    pieces = [bytes([number]) * (number * 7) for number in range(20)]
    sums = np.array([crc32(piece) for piece in pieces], np.uint32)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    for place in range(len(pieces)):
        wrong = sums.copy()
        wrong[place] ^= 1
        assert joined_sum(wrong, lengths) != crc32(b"".join(pieces)), place


def join(pieces: list[bytes]) -> int:
    sums = np.array([crc32(piece) for piece in pieces], np.uint32)
    return joined_sum(sums, np.array([len(piece) for piece in pieces], np.int64))
