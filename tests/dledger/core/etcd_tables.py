"""Reads etcd's tables of cases: a command with arguments, its input, a rule, what is expected.

A case ends at an empty line. Lines that begin with # are for people.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent.parent / "data"
RULE = "----"

_ARGUMENT = re.compile(r"(\w+)=(?:\(([^)]*)\)|(\w+))")


class Case(NamedTuple):
    """One case of a table; `arguments` are the values between parentheses, or the single one."""

    line: int
    command: str
    arguments: dict[str, list[str]]
    input: str
    expected: list[str]


def read_table(path: Path) -> list[Case]:
    """All cases of a file, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cases = []
    at = 0
    while at < len(lines):
        if not lines[at] or lines[at].startswith("#"):
            at += 1
            continue
        rule = lines.index(RULE, at)
        end = next((n for n in range(rule, len(lines)) if not lines[n]), len(lines))
        command, _, rest = lines[at].partition(" ")
        arguments = {
            name: [value.strip() for value in (many or one).split(",")]
            for name, many, one in _ARGUMENT.findall(rest)
        }
        text = " ".join(lines[at + 1 : rule])
        cases.append(Case(at + 1, command, arguments, text, lines[rule + 1 : end]))
        at = end
    return cases


def tables(folder: str) -> list[Path]:
    """The tables in a folder of the test data."""
    return sorted((DATA / folder).glob("*.txt"))
