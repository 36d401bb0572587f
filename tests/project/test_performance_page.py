"""The picture of docs/performance.md shows the figures of the page's first table."""

from __future__ import annotations

from docs._ext.rates_chart import PAGE, PICTURE, draw, rates_of


def test_the_picture_shows_the_rates_of_the_table() -> None:
    rates = rates_of(PAGE.read_text(encoding="utf-8"))
    drawn = draw(rates)
    assert PICTURE.read_text(encoding="utf-8") == drawn, "python -m docs._ext.rates_chart"
    missing = [name for name in rates.systems if name.replace("`", "") not in drawn]
    assert missing == []
