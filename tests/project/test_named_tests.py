"""The tests that the documentation names are there."""

import re
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
# In code marks, as in `test_store_scan.py` (a file) or `test_a_scan_...` (a test).
NAMED = re.compile(r"`((?:[\w/]+/)?test_\w+(?:\.py)?)`")
DEFINED = re.compile(r"def (test_\w+)\(")


def named_in(texts: Iterable[str]) -> set[str]:
    """The tests and files of tests that these texts name."""
    return {name for text in texts for name in NAMED.findall(text)}


def missing(names: Iterable[str], files: Iterable[Path]) -> list[str]:
    """Which of `names` no file is, and no file holds."""
    there: set[str] = set()
    for path in files:
        there |= {path.name, str(path.relative_to(PROJECT))}
        there.update(DEFINED.findall(path.read_text(encoding="utf-8")))
    return sorted(name for name in names if name not in there)


def test_every_test_that_the_documentation_names_is_there() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (PROJECT / "docs").glob("*.md")]
    names = named_in(pages)
    assert len(names) > 50
    assert missing(names, (PROJECT / "tests").rglob("test_*.py")) == []


def test_a_name_that_is_nowhere_is_found() -> None:
    named = named_in(["as `test_nothing_of_this_name` shows, and `test_named_tests.py`"])
    assert missing(named, [Path(__file__)]) == ["test_nothing_of_this_name"]
