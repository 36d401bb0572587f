"""Places in pictures, and texts that a page can show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.pages.markup import shown
from dledger.pages.scale import LogScale, Scale

finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(finite, st.floats(1e-3, 1e12), st.integers(2, 20), st.floats(0, 1))
def test_ticks_are_few_and_on_the_scale(
    low: float, extent: float, number: int, share: float
) -> None:
    scale = Scale(low, low + extent, 100.0, 900.0)
    slack = extent * 1e-6 + abs(low) * 1e-9
    ticks = scale.ticks(number)
    assert 1 <= len(ticks) <= number + 1
    assert all(low - slack <= tick <= low + extent + slack for tick in ticks)
    assert 100.0 <= scale.at(low + share * extent) <= 900.0
    assert scale.at(low - extent) == 100.0


@given(st.floats(1e-3, 1e9), st.floats(10, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_a_logarithmic_scale_keeps_the_order(
    low: float, factor: float, one: float, other: float
) -> None:
    scale = LogScale(low, low * factor, 0.0, 100.0)
    smaller, larger = sorted((one, other))
    assert scale.at(low * factor**smaller) <= scale.at(low * factor**larger)
    assert all(low <= tick <= low * factor for tick in scale.ticks())
    assert scale.ticks()


@given(st.floats(1e-3, 1e12), st.floats(0, 1))
def test_ticks_of_a_scale_from_zero_are_few_and_on_it(high: float, share: float) -> None:
    scale = Scale(0.0, high, 200.0, 10.0)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-1] <= high * (1 + 1e-6)
    assert 10.0 <= scale.at(share * high) <= 200.0


@given(st.floats(1, 1e9), st.floats(1, 1e9))
def test_a_scale_of_marks_lies_around_its_values(one: float, other: float) -> None:
    marks = (1.0, 10.0, 1000.0, 60_000.0)
    least, most = sorted((one, other))
    scale = LogScale.between(marks, least, most, 200.0, 10.0)
    assert 2 <= len(scale.ticks()) <= len(marks)
    assert scale.ticks()[0] <= least or scale.ticks()[0] == marks[-2]
    assert scale.ticks()[-1] >= min(most, marks[-1])
    assert 10.0 <= scale.at(most) <= scale.at(least) <= 200.0


def test_what_no_page_can_show_is_replaced() -> None:
    assert shown("a\x00b\u202ec\ud800d\te") == "a\ufffdb\ufffdc?d\te"
