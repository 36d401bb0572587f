"""Links between the files of this checkout lead somewhere. (Links between pages: `make docs`.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[\w-]*)?\)")


def broken(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    return [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_leads_to_a_file(name: str) -> None:
    assert broken(PROJECT / name) == []


def test_the_readme_leads_to_whatever_begins_a_journey() -> None:
    links = set(LINK.findall((PROJECT / "README.md").read_text(encoding="utf-8")))
    pages = ("tutorial", "examples", "library", "guarantees", "protocol", "storage-format")
    assert {f"docs/{page}.md" for page in pages} <= links


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#top) [b](gone.md) [c](https://example.org/d)")
    assert broken(page) == ["gone.md"]
