"""Tries one mutant: a copy of the project with the mistake in it, and the tests it names."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jepsen_like.mutants.mutant import Mutant, MutantUnusable, module_of
from tests.mutants.outcome_recorder import FILE_VARIABLE

# The slowest test named takes some seconds; a mutant that takes this long hangs.
TRIAL_S = 120
RECORDER = "tests.mutants.outcome_recorder"


class Verdict(Enum):
    """What became of a mutant."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    UNUSABLE = "unusable"  # the list and the code do not fit
    NONSENSE = "nonsense"  # the mutated module does not import, or a test failed for no good reason
    HUNG = "hung"


class Trial(NamedTuple):
    """One mutant, what became of it, and why."""

    mutant: Mutant
    verdict: Verdict
    reason: str


class Workshop:
    """A copy of the project in a temporary folder, in which one mutant after the other is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def try_out(self, mutant: Mutant) -> Trial:
        """Plant the mutant, run its tests, take it out again."""
        try:
            check_tests(mutant, self.folder)
            texts = mutant.patched(self.folder)
        except MutantUnusable as error:
            return Trial(mutant, Verdict.UNUSABLE, str(error))
        whole = {file: (self.folder / file).read_text(encoding="utf-8") for file in texts}
        try:
            self._write(texts)
            return Trial(mutant, *self._judge(mutant))
        except subprocess.TimeoutExpired:
            return Trial(mutant, Verdict.HUNG, f"not over after {TRIAL_S} s")
        finally:
            self._write(whole)

    def _write(self, texts: Mapping[str, str]) -> None:
        for file, text in texts.items():
            (self.folder / file).write_text(text, encoding="utf-8")

    def red_without_a_mutant(self, tests: Sequence[str]) -> list[str]:
        """Those of the tests that fail in the copy as it is, each with its error."""
        status, outcomes, output = self._run_tests(sorted(set(tests)), timeout_s=None)
        red = [f"{outcome['test']}: {outcome['error']}" for outcome in outcomes if outcome["red"]]
        return red or ([] if status == 0 else [_last_line(output)])

    def _judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        # Asked for its file, so that a module found elsewhere on the path is not taken for ours.
        files = list({change.file: None for change in mutant.changes})
        modules = ", ".join(map(module_of, files))
        code = (
            f"import sys, {modules}; print(*(sys.modules[name].__file__ for name in sys.argv[1:]))"
        )
        imported = self._python("-c", code, *map(module_of, files), timeout_s=TRIAL_S)
        if imported.stdout.split() != [str(self.folder / file) for file in files]:
            return Verdict.NONSENSE, f"does not import: {_last_line(imported.stderr)}"
        status, outcomes, output = self._run_tests(mutant.red_tests, TRIAL_S)
        if status not in (0, 1) or not outcomes:
            return Verdict.NONSENSE, f"pytest ended with status {status}: {_last_line(output)}"
        for outcome in outcomes:
            if outcome["red"] and not outcome["verdict"]:
                return Verdict.NONSENSE, f"{outcome['test']}: {outcome['error']}"
        for test in mutant.red_tests:
            if not any(o["red"] for o in outcomes if _is_case_of(str(o["test"]), test)):
                return Verdict.SURVIVED, f"{test} stays green"
        return Verdict.NOTICED, str(next(o["error"] for o in outcomes if o["red"]))

    def _run_tests(
        self, tests: Sequence[str], timeout_s: float | None
    ) -> tuple[int, list[dict[str, object]], str]:
        outcomes = self.folder / "outcomes.jsonl"
        outcomes.write_text("", encoding="utf-8")
        ended = self._python(
            *("-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", RECORDER, *tests),
            timeout_s=timeout_s,
        )
        lines = outcomes.read_text(encoding="utf-8").splitlines()
        return ended.returncode, [json.loads(line) for line in lines], ended.stdout + ended.stderr

    def _python(self, *arguments: str, timeout_s: float | None) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "EXAMPLES": "all",  # see tests/conftest.py
            # Compiled files are told apart by size and second: too coarse for what happens here.
            "PYTHONDONTWRITEBYTECODE": "1",
            FILE_VARIABLE: str(self.folder / "outcomes.jsonl"),
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def check_tests(mutant: Mutant, project: Path) -> None:
    """Raise MutantUnusable unless every test that must go red is there."""
    if not mutant.red_tests:
        raise MutantUnusable(f"{mutant.name}: it names no test")
    for test in mutant.red_tests:
        path, _, function = test.partition("::")
        function = function.partition("[")[0]
        if not (project / path).is_file():
            raise MutantUnusable(f"{mutant.name}: there is no file {path}")
        if function not in functions_of(project / path):
            raise MutantUnusable(f"{mutant.name}: there is no {function} in {path}")


@cache
def functions_of(path: Path) -> set[str]:
    """The functions at the top of a module. Read once: tests do not change while they are tried."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@contextmanager
def workshops(project: Path, count: int) -> Iterator[list[Workshop]]:
    """So many copies of the project's packages and tests; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dledger-mutants-") as base:
        made = []
        for number in range(count):
            folder = Path(base).resolve() / str(number)
            copy_project(project, folder)
            made.append(Workshop(folder))
        yield made


def copy_project(project: Path, folder: Path) -> None:
    """Copy what tests run with: packages, tests, settings."""
    settings = project / "pyproject.toml"
    tables = tomllib.loads(settings.read_text(encoding="utf-8"))
    packages = tables["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folder.mkdir()
    shutil.copy(settings, folder)
    for name in [*packages, "tests"]:
        shutil.copytree(project / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def _is_case_of(case: str, test: str) -> bool:
    return case == test or case.startswith(test + "[")


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
