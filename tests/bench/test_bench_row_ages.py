from __future__ import annotations

import math

import pytest

from bench.spark.row_ages import RowAges

S = 1_000_000_000


def test_the_rows_of_a_large_batch_count_more_than_those_of_a_small_one() -> None:
    ages = RowAges()
    ages.add(1, mean_sent_ns=9.9 * S, first_sent_ns=9.9 * S, now_ns=10 * S)
    ages.add(1, mean_sent_ns=10.9 * S, first_sent_ns=10.9 * S, now_ns=11 * S)
    ages.add(98, mean_sent_ns=12 * S, first_sent_ns=11 * S, now_ns=14 * S)
    assert ages.rows == 100
    assert ages.mean_s == pytest.approx(0.02 * 0.1 + 0.98 * 2)
    assert ages.oldest_s == pytest.approx(3)


def test_a_batch_without_counted_rows_changes_nothing() -> None:
    ages = RowAges()
    ages.add(0, math.nan, math.nan, 10 * S)
    assert (ages.rows, ages.oldest_s) == (0, 0)
    assert math.isnan(ages.mean_s)
