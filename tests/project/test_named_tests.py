"""The tests that the documentation names are there."""

import re
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import TOGETHER

PROJECT = Path(__file__).parent.parent.parent
# In code marks, as in `test_store_scan.py` (a file), `test_a_scan_...` (a test) or a scenario.
NAMED = re.compile(r"`((?:[\w/]+/)?test_\w+(?:\.py)?|(?:[\w/]+/)?\w+\.scenario)`")
DEFINED = re.compile(r"def (test_\w+)\(")


def named_in(texts: Iterable[str]) -> set[str]:
    """The tests and files of tests that these texts name."""
    return {name for text in texts for name in NAMED.findall(text)}


def missing(names: Iterable[str], files: Iterable[Path]) -> list[str]:
    """Which of `names` no file is, and no file holds."""
    there: set[str] = set()
    for path in files:
        there |= {path.name, str(path.relative_to(PROJECT))}
        if path.suffix == ".py":
            there.update(DEFINED.findall(path.read_text(encoding="utf-8")))
    return sorted(name for name in names if name not in there)


def test_every_test_that_the_documentation_names_is_there() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (PROJECT / "docs").rglob("*.md")]
    names = named_in(pages)
    assert len(names) > 50
    assert missing(names, all_tests()) == []


def test_every_test_that_shares_a_process_with_others_is_there() -> None:
    names = {part for nodeid in TOGETHER for part in nodeid.split("::")}
    assert missing(names, all_tests()) == []


def all_tests() -> list[Path]:
    folder = PROJECT / "tests"
    return [*folder.rglob("test_*.py"), *folder.rglob("*.scenario")]


# --- docs/matrix.md -------------------------------------------------------------------------------


def rows_of(page: str) -> list[list[str]]:
    """The cells of every row of its tables, without the heads."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set(row[0]) <= {"-"}]


def unfounded(rows: Iterable[list[str]]) -> list[str]:
    """The features that are said to be here, and neither a test nor another page shows it."""
    claimed = [row for row in rows if row[-1].startswith(("yes", "always", "opt", "in "))]
    return [row[0] for row in claimed if not named_in([row[-1]]) and "](" not in row[-1]]


def test_every_feature_that_the_matrix_claims_has_a_test() -> None:
    rows = rows_of((PROJECT / "docs" / "matrix.md").read_text(encoding="utf-8"))
    assert {len(row) for row in rows} == {9}
    assert len(rows) > 40
    assert unfounded(rows) == []


def test_a_feature_without_a_test_is_found() -> None:
    rows = rows_of("| a | yes, of course |\n|---|---|\n| b | yes: `test_b` |\n| c | no |")
    assert unfounded(rows) == ["a"]


def test_a_name_that_is_nowhere_is_found() -> None:
    named = named_in(
        ["as `test_nothing_of_this_name` shows, `no.scenario` and `test_named_tests.py`"]
    )
    assert missing(named, [Path(__file__)]) == ["no.scenario", "test_nothing_of_this_name"]
