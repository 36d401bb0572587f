"""docs/scenarios.md names every scenario, and every verb of their language."""

import re
from pathlib import Path

from tests.dledger.scenarios.scenario_language import Scenario

PROJECT = Path(__file__).parent.parent.parent
PAGE = (PROJECT / "docs" / "scenarios.md").read_text(encoding="utf-8")


def test_the_page_of_scenarios_names_every_scenario_and_no_other() -> None:
    there = {path.stem for path in (PROJECT / "tests").rglob("*.scenario")}
    assert set(re.findall(r"^\| `(\w+_\w+)` \|", PAGE, re.MULTILINE)) == there


def test_the_page_of_scenarios_names_every_verb() -> None:
    assert Scenario().verbs <= set(re.findall(r"`([a-z]+)[^`]*`", PAGE))
