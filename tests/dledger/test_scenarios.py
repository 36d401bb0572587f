"""Plays every file of tests/dledger/scenarios, and shows that the language is strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dledger.scenario_language import (
    Scenario,
    ScenarioFailed,
    ScenarioMalformed,
    play_file,
)

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.scenario"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_says(path: Path) -> None:
    play_file(path)
