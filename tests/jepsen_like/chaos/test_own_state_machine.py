"""The page about one's own state machine: its files are run as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jepsen_like.chaos.service import ServiceUnusable
from jepsen_like.chaos.services import find_service
from tests.jepsen_like.chaos.run_process import run_in

PROJECT = Path(__file__).parents[3]
FILE = re.compile(r"<!-- file (?P<name>\S+) -->\n```python\n(?P<text>.*?)```\n", re.DOTALL)


def write_files(folder: Path) -> None:
    page = (PROJECT / "docs" / "test-your-state-machine.md").read_text(encoding="utf-8")
    files = {match["name"]: match["text"] for match in FILE.finditer(page)}
    assert sorted(files) == ["stutter.py", "tickets.py", "tickets_test.py"]
    for name, text in files.items():
        (folder / name).write_text(text)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_in(folder, "--service", "tickets_test:Tickets", *words)


@pytest.mark.long
def test_the_shop_of_the_page_sells_no_seat_twice(tmp_path: Path) -> None:
    write_files(tmp_path)
    ended = run(tmp_path, "--nemesis", "kill", "--time", "3", "--seed", "4", "--out", "right")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (tickets_test:OneSeat): linearizable" in ended.stdout


@pytest.mark.slow
@pytest.mark.forked_programs
def test_a_shop_that_sells_a_seat_again_is_found(tmp_path: Path) -> None:
    write_files(tmp_path)
    right = (tmp_path / "tickets.py").read_text()
    wrong = right.replace(
        "        return self.owners.setdefault(seat, buyer)\n",
        "        self.owners[seat] = buyer\n        return buyer\n",
    )
    assert wrong != right
    (tmp_path / "tickets.py").write_text(wrong)
    ended = run(tmp_path, "--nemesis", "none", "--time", "2", "--seed", "4", "--out", "wrong")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "has no place in any order" in ended.stdout


MACHINES = """
class Machine:
    def apply(self, entries):
        return [None] * len(entries)

class Alone(Machine):
    pass

class First:
    machine = Machine
    model = "set"
    def generate(self, caller): ...

class Broken:
    machine = Alone
    def __init__(self, needed): ...
    def generate(self, caller): ...

class Other:
    machine = int
    def generate(self, caller): ...

class Another(Other):
    machine = int
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "machines_of_a_user"
    (tmp_path / f"{name}.py").write_text(MACHINES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_machine_leads_to_the_class_about_it(module: str) -> None:
    by_machine, by_class = find_service(f"{module}:Machine"), find_service(f"{module}:First")
    assert type(by_machine.service) is type(by_class.service)
    assert by_machine.model_name == "set"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "no workload is named nowhere: `jepsen-like list` has them all"),
        ("nowhere:Machine", "cannot import nowhere"),
        ("{}:Nothing", "has no Nothing"),
        ("{}:Broken", "cannot be made without arguments"),
        ("{}:Alone", "cannot be made without arguments"),
        ("{}:Other.machine", "has no Other.machine"),
        ("builtins:int", "no class of builtins with generate() and `machine = int`"),
    ],
)
def test_a_name_without_a_service_is_told_in_one_line(module: str, name: str, said: str) -> None:
    with pytest.raises(ServiceUnusable) as raised:
        find_service(name.format(module))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_of_two_classes_about_one_machine_none_is_chosen(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sys.modules.get(module) or __import__(module)
    monkeypatch.setattr(found, "Number", int, raising=False)
    with pytest.raises(ServiceUnusable, match="2 classes"):
        find_service(f"{module}:Number")
