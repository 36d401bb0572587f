"""The table of RocketMQ's features says what is there, and which tests prove it."""

from __future__ import annotations

from docs._ext.features import PAGE, features, page_with, proofs, rows


def test_the_table_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, rows()), "python -m docs._ext.features"


def test_features_are_numbered_and_each_is_here_or_has_a_reason() -> None:
    found = features()
    assert [one.mark for one in found] == [f"F{number}" for number in range(1, len(found) + 1)]
    assert len(found) == 60
    unclear = [one.mark for one in found if bool(one.here) == bool(one.reason)]
    assert unclear == []


def test_each_feature_that_is_here_has_a_proof() -> None:
    proven = proofs()
    without = [one.mark for one in features() if one.here and one.mark not in proven]
    assert without == [], "mark a test: @pytest.mark.feature(...)"


def test_tests_name_features_that_are_known() -> None:
    assert proofs().keys() <= {one.mark for one in features()}
