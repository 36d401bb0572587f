"""docs/failures.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent


def test_every_test_that_the_failures_page_names_exists() -> None:
    page = (PROJECT / "docs" / "failures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = (path.read_text(encoding="utf-8") for path in PROJECT.glob("tests/**/test_*.py"))
    existing = {name for text in sources for name in re.findall(r"def (test_\w+)\(", text)}
    assert named
    assert named <= existing
