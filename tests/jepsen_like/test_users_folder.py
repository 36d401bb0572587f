"""A file in the user's folder with the name of a module that commands need is named at once."""

import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.users_folder import PACKAGES

ROOT = Path(__file__).parents[2]
COUNTER = """
class Counter:
    def __init__(self):
        self.count = 0

    def apply(self, entries):
        self.count += len(entries)
        return [None] * len(entries)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "users_counter", raising=False)
    (tmp_path / "users_counter.py").write_text(COUNTER)
    return tmp_path


COMMANDS = [
    ("simulate", "--service", "users_counter:Counter", "--seeds", "1", "--seconds", "1"),
    ("run", "--service", "users_counter:Counter", "--time", "1"),
    ("check", "users_counter.py", "--model", "users_counter:Counter"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_each_name_that_a_command_needs_is_refused_in_the_users_folder(
    folder: Path, words: tuple[str, ...]
) -> None:
    kept = []
    for name in (*PACKAGES, "trio", "queue"):
        file = folder / f"{name}.py"
        file.write_text("")
        told = CliRunner().invoke(main, list(words))
        file.unlink()
        if told.exit_code != 2 or f"{name}.py has the name of a module" not in told.output:
            kept.append((name, told.output))
    assert not kept


def test_other_files_and_folders_without_modules_are_in_nobodys_way(folder: Path) -> None:
    (folder / "broker").mkdir()
    (folder / "stock.py").write_text("")
    told = CliRunner().invoke(main, list(COMMANDS[0]))
    assert told.exit_code == 0, told.output


def test_a_package_in_the_way_is_named_by_its_file(folder: Path) -> None:
    (folder / "remoting").mkdir()
    (folder / "remoting" / "__init__.py").write_text("")
    told = CliRunner().invoke(main, list(COMMANDS[0]))
    assert "remoting/__init__.py has the name" in told.output


def test_all_packages_of_the_project_are_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == list(PACKAGES)
