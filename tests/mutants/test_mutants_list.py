"""The list of mutants fits the code. `make mutants` tries them; here one small one is tried."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_like.mutants.mutant import Change, Mutant, MutantUnusable, all_mutants, read_mutants
from jepsen_like.mutants.planting import planted
from tests.mutants import outcome_recorder
from tests.mutants.run import main, mutants_of_tests
from tests.mutants.trial import Verdict, Workshop, check_tests, functions_of

PROJECT = Path(__file__).parents[2]
TRAPS = PROJECT / "docs" / "traps.md"
MUTANTS = mutants_of_tests()


def test_each_mutant_changes_one_place_and_names_tests_that_exist() -> None:
    unusable: list[str] = []
    for mutant in MUTANTS:
        try:
            check_tests(mutant, PROJECT)
            for text in mutant.patched(PROJECT).values():
                ast.parse(text)
        except (MutantUnusable, SyntaxError) as error:
            unusable.append(f"{mutant.name}: {error}")
    assert unusable == []


def test_each_mutant_that_runs_must_find_can_be_planted_in_a_process() -> None:
    unusable: list[str] = []
    for mutant in all_mutants().values():
        if mutant.area is None:
            continue
        try:
            with planted(mutant.name):
                pass
        except (MutantUnusable, SyntaxError, ValueError) as error:
            unusable.append(f"{mutant.name}: {error}")
    assert unusable == []


def test_something_must_notice_each_mutant_and_its_entry_says_what_it_does() -> None:
    for mutant in all_mutants().values():
        assert mutant.area is not None or mutant.red_tests, mutant.name
        assert not mutant.what.endswith("."), mutant.name
        assert mutant.tier is not None or not (mutant.quick or mutant.only_aimed), mutant.name


def test_every_scenario_must_notice_some_mutant() -> None:
    scenarios = (PROJECT / "tests" / "dledger" / "scenarios").glob("*.scenario")
    noticing = {scenario for mutant in MUTANTS for scenario in mutant.scenarios}
    assert noticing == {path.stem for path in scenarios}


# --- docs/traps.md --------------------------------------------------------------------------------


def rows() -> list[list[str]]:
    """The cells of each trap: number, trap, what we do, test, mutant."""
    lines = TRAPS.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| *\d+ *\|", line)
    ]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_page_of_traps_has_one_row_for_each_trap() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, 63))
    assert {len(row) for row in rows()} == {5}


def test_the_page_of_traps_names_every_mutant_beside_its_traps() -> None:
    for number, _, _, _, mutants in rows():
        wanted = {mutant.name for mutant in MUTANTS if int(number) in mutant.traps}
        assert quoted(mutants) == wanted, f"trap {number}"


def test_every_test_that_the_page_of_traps_names_is_there() -> None:
    named = "|".join({name for row in rows() for name in quoted(row[3])})
    defines = re.compile(rf"^(?:async )?def (?:{named})\(", re.MULTILINE)
    functions: set[str] = set()
    for path in (PROJECT / "tests").rglob("test_*.py"):
        if defines.search(path.read_text(encoding="utf-8")):
            functions |= functions_of(path)
    for number, _, _, tests, _ in rows():
        assert quoted(tests) <= functions, f"trap {number}"


def test_a_trap_without_a_test_or_a_mutant_says_what_it_waits_for() -> None:
    for number, _, what_we_do, tests, mutants in rows():
        if not quoted(tests) or not quoted(mutants):
            assert what_we_do.startswith("*Waits for "), f"trap {number}"


# --- the runner -----------------------------------------------------------------------------------


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A project of one function and one test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its test needs none of them
    files = {
        "pyproject.toml": '[tool.pytest]\naddopts = ["--import-mode=importlib"]\n',
        "pack/__init__.py": "",
        "pack/adder.py": "def add(a: int, b: int) -> int:\n    return a + b\n",
        "tests/test_adder.py": (
            "from pack.adder import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"
        ),
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "tests" / "mutants").mkdir()
    shutil.copy(outcome_recorder.__file__, tmp_path / "tests" / "mutants")
    return Workshop(tmp_path.resolve())


def adder(replace: str, find: str = "return a + b", test: str = "test_add") -> Mutant:
    change = Change("pack/adder.py", find, replace)
    return Mutant("m", "it does", (change,), tests=(f"tests/test_adder.py::{test}",))


@pytest.mark.parametrize(
    ("mutant", "verdict", "reason"),
    [
        (adder("return a - b"), Verdict.NOTICED, "AssertionError"),
        (adder("return b + a"), Verdict.SURVIVED, "test_add stays green"),
        (adder("return a + c"), Verdict.NONSENSE, "NameError"),
        (adder("return (a"), Verdict.NONSENSE, "does not import"),
        (adder("return b", find="return a * b"), Verdict.UNUSABLE, "0 times"),
        (adder("return b", find="a"), Verdict.UNUSABLE, "3 times"),
        (adder("return b", test="test_gone"), Verdict.UNUSABLE, "no test_gone"),
    ],
)
def test_a_mutant_is_noticed_only_where_its_test_says_so(
    workshop: Workshop, mutant: Mutant, verdict: Verdict, reason: str
) -> None:
    before = (workshop.folder / "pack" / "adder.py").read_text(encoding="utf-8")
    trial = workshop.try_out(mutant)
    assert trial.verdict is verdict
    assert reason in trial.reason
    assert (workshop.folder / "pack" / "adder.py").read_text(encoding="utf-8") == before


def test_a_test_that_is_red_without_a_mutant_is_said_so(workshop: Workshop) -> None:
    tests = ["tests/test_adder.py::test_add"]
    assert workshop.red_without_a_mutant(tests) == []
    (workshop.folder / "pack" / "adder.py").write_text("def add(a, b):\n    return 0\n")
    [red] = workshop.red_without_a_mutant(tests)
    assert red.startswith("tests/test_adder.py::test_add: AssertionError")


def test_the_runner_lists_mutants_and_refuses_an_unknown_name() -> None:
    listed = CliRunner().invoke(main, ["--list"])
    assert listed.exit_code == 0
    assert len(listed.output.splitlines()) == len(MUTANTS)
    refused = CliRunner().invoke(main, ["--only", "no-such-mutant"])
    assert refused.exit_code == 1
    assert "no mutant is called no-such-mutant" in refused.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[mutant]]\nname = "a"\n', "a: missing or unknown"),
        (
            '[[mutant]]\nname = "a"\nwhat = ""\nfile = ""\nfind = ""\nreplace = ""\nnope = 1\n',
            "a: missing or unknown: .'nope'",
        ),
        (
            '[[mutant]]\nname = "a"\nwhat = ""\nfile = ""\nfind = ""\nreplace = ""\n' * 2,
            "a: two mutants have this name",
        ),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "part.toml").write_text(text, encoding="utf-8")
    with pytest.raises(MutantUnusable, match=problem):
        read_mutants(tmp_path)
