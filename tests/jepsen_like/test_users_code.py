"""A user's own code beside the command: its names hide nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from jepsen_like.users_code import raised_in, said

SERVICE = """
from jepsen_like.chaos.service import Call


class Machine:
    def __init__(self):
        self.values = {}

    def apply(self, entries):
        results = []
        for entry in entries:
            self.values[entry.index] = entry.body
            results.append(entry.index)
        return results


class Base:
    machine = Machine
    model = "set"  # `answered` is called where the calls are checked

    def generate(self, caller):
        if caller.random.random() < 0.5:
            return Call("read", "x", is_read=True)
        return Call("add", "x", caller.number, b"%d" % caller.number)

    def query(self, machine, call):
        return [int(value) for value in machine.values.values()]
"""


def simulate(folder: Path, name: str, jobs: int, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("simulate", "--service", name, "--seeds", "2", "--seconds", "1", "--nodes", "1")
    return subprocess.run(
        [Path(sys.executable).parent / "jepsen-like", *words, *more, "--jobs", str(jobs)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )


def test_modules_beside_the_service_hide_nothing_of_this_project(tmp_path: Path) -> None:
    for name in ("broker", "remoting", "message_log", "click", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hidden')\n")
    (tmp_path / "mine.py").write_text(SERVICE)
    ended = simulate(tmp_path, "mine:Base", 2)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = simulate(tmp_path, "broker:Base", 2)
    assert "broker/__init__.py has no Base" in ended.stderr


def test_what_a_machine_prints_is_not_in_the_answer(tmp_path: Path) -> None:
    printing = SERVICE.replace(
        "        results = []\n", "        print('hello')\n        results = []\n"
    )
    (tmp_path / "mine.py").write_text(printing)
    for jobs in (1, 2):
        ended = simulate(tmp_path, "mine:Base", jobs, "--json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert json.loads(ended.stdout)["failure"] is None
        assert "hello" in ended.stderr


def test_a_machine_that_ends_the_process_leaves_nothing_known(tmp_path: Path) -> None:
    ending = SERVICE.replace("        results = []\n", "        os._exit(0)\n")
    (tmp_path / "mine.py").write_text("import os\n" + ending)
    ended = simulate(tmp_path, "mine:Base", 2)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "a process that did part of the work has ended" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_class_that_cannot_be_made_is_refused_in_a_line(tmp_path: Path) -> None:
    needy = "\n\nclass Needy(Base):\n    def __init__(self, needed):\n        pass\n"
    (tmp_path / "mine.py").write_text(SERVICE + needy)
    ended = simulate(tmp_path, "mine:Needy", 1)
    assert ended.returncode == 2
    assert "mine:Needy: cannot be made without arguments: TypeError" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_error_whose_text_cannot_be_made_is_told_by_its_type() -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert said(Speechless()) == "Speechless: without a text"
    assert "Speechless" in raised_in(Speechless())
