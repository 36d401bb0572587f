"""The programs in docs/ do what their pages say.

A program is a block of Python behind `<!-- run -->`. What it prints stands in the block of text
behind the next `<!-- prints -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.page_program import printed_by

ROOT = Path(__file__).parent.parent.parent
PROGRAM = re.compile(
    r"<!-- run -->\n```python\n(?P<program>.*?)```\n"
    r".*?<!-- prints -->\n```text\n(?P<printed>.*?)```\n",
    re.DOTALL,
)
# Each starts real nodes and ends by itself; most of the time goes to imports and an election.
TIMEOUT_S = 120


def programs() -> list[ParameterSet]:
    found: list[ParameterSet] = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        matches = list(PROGRAM.finditer(text))
        assert len(matches) == text.count("<!-- run -->"), f"{page.name}: what does it print?"
        for number, match in enumerate(matches, 1):
            found.append(
                pytest.param(match["program"], match["printed"], id=f"{page.stem}-{number}")
            )
    return found


@pytest.mark.forked_programs
@pytest.mark.parametrize(("program", "printed"), programs())
def test_a_program_of_the_documentation_prints_what_its_page_says(
    program: str, printed: str, tmp_path: Path
) -> None:
    assert printed_by(program, tmp_path, {"PYTHONPATH": str(ROOT)}, TIMEOUT_S) == printed


def test_there_are_programs_to_run() -> None:
    assert len(programs()) >= 2
