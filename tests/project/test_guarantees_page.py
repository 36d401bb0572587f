"""docs/guarantees.md: every promise names tests that are there, and mistakes to be planted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from jepsen_like.mutants.mutant import all_mutants
from tests.project.test_named_tests import all_tests, missing, named_in, rows_of

PROJECT = Path(__file__).parent.parent.parent
PAGE = (PROJECT / "docs" / "guarantees.md").read_text(encoding="utf-8")
HEAD = ["promise", "how it is kept", "tests", "planted mistakes"]
MISTAKE = re.compile(r"`([a-z]+(?:-[a-z0-9]+)+)`")


def promises(page: str) -> list[list[str]]:
    """The rows of its tables."""
    return [row for row in rows_of(page) if row != HEAD and not set(row[0]) <= set("- ")]


def without_a_test(rows: Iterable[list[str]]) -> list[str]:
    """The promises that no test shows."""
    return [row[0] for row in rows if not named_in([row[2]])]


def known_mistakes() -> set[str]:
    return set(all_mutants())


def test_every_promise_names_tests_that_are_there() -> None:
    rows = promises(PAGE)
    assert len(rows) > 25
    assert {len(row) for row in rows} <= {len(HEAD) - 1, len(HEAD)}  # no mistake is planted for all
    assert without_a_test(rows) == []
    assert missing(named_in(row[2] for row in rows), all_tests()) == []


def test_every_mistake_that_a_promise_names_can_be_planted() -> None:
    named = {name for row in promises(PAGE) for name in MISTAKE.findall("".join(row[3:]))}
    assert len(named) > 25
    assert named <= known_mistakes()


def test_the_page_says_what_is_not_promised() -> None:
    (rest,) = re.findall(r"^## What we do not promise\n(.*)", PAGE, re.MULTILINE | re.DOTALL)
    assert rest.count("\n- ") > 8


# Below, the checks are shown to be able to fail.

SAMPLE = """
| promise | how it is kept | tests | planted mistakes |
|---|---|---|---|
| kept | so | `test_a_promise` | `vote-twice` |
| broken | somehow | the future | `no-such-thing` |
"""


def test_a_promise_without_a_test_and_a_mistake_that_is_none_are_found() -> None:
    rows = promises(SAMPLE)
    assert without_a_test(rows) == ["broken"]
    assert {
        name for row in rows for name in MISTAKE.findall("".join(row[3:]))
    } - known_mistakes() == {"no-such-thing"}
