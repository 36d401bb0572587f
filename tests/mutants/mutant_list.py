"""The mutants: one planted mistake each, and the tests that must notice it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).parent / "mutants.toml"


class MutantUnusable(Exception):
    """A line of the list does not fit the code: say which, and how."""


class Mutant(NamedTuple):
    """One mistake: where it is made, and who must notice.

    Attributes:
        name: how it is called on the command line.
        traps: numbers of the traps that it puts back; the numbers of docs/traps.md.
        what: one sentence: what the mutated code does.
        file: path from the project's folder.
        find, replace: the text that is there exactly once, and what stands in its place.
        tests: "path::function" or "path::function[case]"; every one must go red.
    """

    name: str
    traps: tuple[int, ...]
    what: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        """The dotted name of the mutated module."""
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def mutated(self, project: Path) -> str:
        """The text of the file with the mistake in it. Raises MutantUnusable."""
        path = project / self.file
        if not path.is_file():
            raise MutantUnusable(f"{self.name}: there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        found = text.count(self.find)
        if found != 1:
            raise MutantUnusable(f"{self.name}: its text is {found} times in {self.file}, not once")
        if self.find == self.replace:
            raise MutantUnusable(f"{self.name}: it changes nothing")
        return text.replace(self.find, self.replace)

    def check_tests(self, project: Path) -> None:
        """Raise MutantUnusable unless every named test is there."""
        if not self.tests:
            raise MutantUnusable(f"{self.name}: it names no test")
        for test in self.tests:
            path, _, function = test.partition("::")
            function = function.partition("[")[0]
            if not (project / path).is_file():
                raise MutantUnusable(f"{self.name}: there is no file {path}")
            if function not in functions_of(project / path):
                raise MutantUnusable(f"{self.name}: there is no {function} in {path}")


@cache
def functions_of(path: Path) -> set[str]:
    """The functions at the top of a module. Read once: tests do not change while they are tried."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """The list, in the order of the file. Raises MutantUnusable for a line that is none."""
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    mutants = []
    for table in tables:
        if set(table) != set(Mutant._fields):
            wrong = sorted(set(table) ^ set(Mutant._fields))
            raise MutantUnusable(f"{table.get('name', '?')}: missing or unknown: {wrong}")
        mutants.append(
            Mutant(**{**table, "traps": tuple(table["traps"]), "tests": tuple(table["tests"])})
        )
    names = [mutant.name for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise MutantUnusable(f"{name}: two mutants have this name")
    return mutants
