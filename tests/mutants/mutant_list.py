"""The mutants: one planted mistake each, and the tests that must notice it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).parent / "mutants.toml"
SCENARIOS = Path(__file__).parent / "scenarios.toml"
PLAYER = "tests/dledger/scenarios/test_scenarios.py::test_a_scenario_goes_as_it_says"


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


def read_mutants(path: Path = LIST, scenarios: Path = SCENARIOS) -> list[Mutant]:
    """The list, in the order of the file, with the scenarios that must notice each mutant.

    Raises MutantUnusable for a line that is none.
    """
    files = [tomllib.loads(file.read_text(encoding="utf-8")) for file in (path, scenarios)]
    mutants: dict[str, Mutant] = {}
    for table in [table for file in files for table in file.get("mutant", [])]:
        if set(table) != set(Mutant._fields):
            wrong = sorted(set(table) ^ set(Mutant._fields))
            raise MutantUnusable(f"{table.get('name', '?')}: missing or unknown: {wrong}")
        mutant = Mutant(**{**table, "traps": tuple(table["traps"]), "tests": tuple(table["tests"])})
        if mutant.name in mutants:
            raise MutantUnusable(f"{mutant.name}: two mutants have this name")
        mutants[mutant.name] = mutant
    for scenario, names in files[1]["notices"].items():
        for name in names:
            if name not in mutants:
                raise MutantUnusable(f"{scenario}: it shall notice {name}, which is no mutant")
            tests = (*mutants[name].tests, f"{PLAYER}[{scenario}]")
            mutants[name] = mutants[name]._replace(tests=tests)
    return list(mutants.values())


def read_notices(path: Path = SCENARIOS) -> dict[str, list[str]]:
    """For each scenario the mutants that it must notice."""
    notices: dict[str, list[str]] = tomllib.loads(path.read_text(encoding="utf-8"))["notices"]
    return notices
