"""A known mistake: a patch of the source, and what must notice it. Read from the catalogue.

The catalogue is the files of `catalogue/`, one for each part of the product. An entry has:

name       what commands call it
what       what the code with the mistake does
file       the file that is changed
find       text that is in the file exactly once
replace    what stands in its place
also       more such changes: an array of tables of file, find and replace
traps      the traps that it puts back: the numbers of docs/traps.md
tests      the tests that must go red, every one of them
scenarios  the scenarios of tests/dledger/scenarios that must go red
tier       the tier of the simulation that must find it
workload   the workload that must find it in a run on real processes
nemesis    what it takes for that, unless the default does
quick      the simulation shows it within a few seeds, so the default suite looks for it
only_aimed the simulation shows it under its aim alone

When code moves, move the mistake with it. When a test is renamed, rename it here.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from dledger.declared_error import DeclaredError

FOLDER: Final = Path(__file__).parent / "catalogue"
# The folder of the packages: this checkout, or where they are installed.
ROOT: Final = Path(__file__).parents[2]
SERVICES = "services"
SCENARIOS_TEST = "tests/dledger/scenarios/test_scenarios.py::test_a_scenario_goes_as_it_says"


class MutantUnusable(DeclaredError):
    """An entry of the catalogue does not fit the code: `problem` says which, and how."""

    problem: str


class Change(NamedTuple):
    """One place that a mistake changes: text that is in the file once, and what replaces it."""

    file: str
    find: str
    replace: str


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Mutant(NamedTuple):
    """A mistake. The attributes are the keys of an entry: see the module."""

    name: str
    what: str
    changes: tuple[Change, ...]
    traps: tuple[int, ...] = ()
    tests: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    tier: str | None = None
    workload: str | None = None
    nemesis: str | None = None
    quick: bool = False
    only_aimed: bool = False

    @property
    def red_tests(self) -> tuple[str, ...]:
        """All tests that must go red, as "path::function" or "path::function[case]"."""
        return (*self.tests, *(f"{SCENARIOS_TEST}[{name}]" for name in self.scenarios))

    @property
    def area(self) -> str | None:
        """The area in which the harness looks for it: a tier, or SERVICES; None: only tests do."""
        return self.tier or (SERVICES if self.workload else None)

    def patched(self, root: Path = ROOT) -> dict[str, str]:
        """Return the texts of the changed files with the mistake in them. Raises MutantUnusable."""
        texts: dict[str, str] = {}
        for file, find, replace in self.changes:
            path = root / file
            if not path.is_file():
                raise MutantUnusable(f"{self.name}: there is no file {file}")
            text = texts.get(file) or path.read_text(encoding="utf-8")
            found = text.count(find)
            if found != 1:
                raise MutantUnusable(f"{self.name}: its text is {found} times in {file}, not once")
            if find == replace:
                raise MutantUnusable(f"{self.name}: it changes nothing")
            texts[file] = text.replace(find, replace)
        return texts

    def diff(self) -> str:
        return "".join(self._diff_lines())

    def _diff_lines(self) -> Iterator[str]:
        for file, text in self.patched().items():
            before = (ROOT / file).read_text(encoding="utf-8").splitlines(keepends=True)
            after = text.splitlines(keepends=True)
            yield from difflib.unified_diff(before, after, file, f"{file}, {self.name}")


def read_mutants(folder: Path = FOLDER) -> dict[str, Mutant]:
    """Return the catalogue of a folder, by name. Raises MutantUnusable for a wrong entry."""
    mutants: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
            mutant = _read(entry)
            if mutant.name in mutants:
                raise MutantUnusable(f"{mutant.name}: two mutants have this name")
            mutants[mutant.name] = mutant
    return mutants


@cache
def all_mutants() -> dict[str, Mutant]:
    return read_mutants()


def mutants_of(tier: str) -> list[Mutant]:
    return [mutant for mutant in all_mutants().values() if mutant.tier == tier]


def _read(entry: dict[str, Any]) -> Mutant:
    known = {*Mutant._fields, *Change._fields, "also"} - {"changes"}
    missing = {"name", "what", *Change._fields} - entry.keys()
    if wrong := sorted(missing | (entry.keys() - known)):
        raise MutantUnusable(f"{entry.get('name', '?')}: missing or unknown: {wrong}")
    changes = [
        Change(*(one[key] for key in Change._fields)) for one in (entry, *entry.get("also", ()))
    ]
    rest: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in entry.items()
        if key in Mutant._fields
    }
    return Mutant(**rest, changes=tuple(changes))
