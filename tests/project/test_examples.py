"""The programs in docs/examples do what they say, with real processes that are killed."""

from __future__ import annotations

import ast
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.project.running_program import PROJECT, RunningProgram, run_program

EXAMPLES = PROJECT / "docs" / "examples"
PAGE = (PROJECT / "docs" / "examples.md").read_text(encoding="utf-8")
WEB_PAGE = (PROJECT / "docs" / "in-your-web-application.md").read_text(encoding="utf-8")
NAMES = ("n0", "n1", "n2")
pytestmark = pytest.mark.forked_programs

# What a reader takes in at one go.
LINES_MIN, LINES_MAX = 40, 140


def adjacent_ports(count: int) -> int:
    """The first of so many free ports next to each other."""
    for first in free_ports(50):
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.mark.slow
def test_the_key_value_store_answers_while_a_member_is_down(tmp_path: Path) -> None:
    program, port = str(EXAMPLES / "key_value_store.py"), str(adjacent_ports(3))

    def ask(*words: str) -> str:
        return run_program([program, *words], tmp_path, KV_PORT=port)

    with ExitStack() as stack:
        members = {
            name: stack.enter_context(
                RunningProgram([program, "serve", name], tmp_path, KV_PORT=port)
            )
            for name in NAMES
        }
        for name, member in members.items():
            member.until(f"{name} serves")
        assert ask("get", "colour") == "None"
        assert ask("set", "colour", "blue") == "done"
        assert ask("get", "colour") == "blue"
        watcher = stack.enter_context(
            RunningProgram([program, "watch", "colour"], tmp_path, KV_PORT=port)
        )
        watcher.until(r"\d+: it is blue")
        assert ask("swap", "colour", "blue", "green") == "done"
        assert ask("swap", "colour", "blue", "red") == "it was something else"
        assert "say get KEY" in ask("paint", "it")
        members["n0"].kill()
        assert ask("get", "colour") == "green"
        assert ask("set", "colour", "red") == "done"
        watcher.until(r"\d+: set to green")
        watcher.until(r"\d+: set to red")


@pytest.mark.slow
def test_the_second_worker_takes_over_the_lock_of_one_that_is_killed(tmp_path: Path) -> None:
    program, port = str(EXAMPLES / "lock_service.py"), str(adjacent_ports(3))

    def running(*words: str) -> RunningProgram:
        return RunningProgram([program, *words], tmp_path, LOCKS_PORT=port)

    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(running("serve", name)).until(f"{name} runs")
        red = stack.enter_context(running("work", "red"))
        first = int(red.until(r"red has the lock, token (\d+)")[1])
        blue = stack.enter_context(running("work", "blue"))
        blue.until("blue waits for the lock")
        watcher = stack.enter_context(running("watch"))
        watcher.until(rf"\d+: token {first} holds the lock")
        red.kill()
        second = int(blue.until(r"blue has the lock, token (\d+)")[1])
        watcher.until(rf"\d+: token {second} holds the lock")
    assert second > first
    rows = [line.split() for line in (tmp_path / "protected.txt").read_text().splitlines()]
    assert {(int(token), name) for token, name in rows} <= {(first, "red"), (second, "blue")}
    assert rows == sorted(rows, key=lambda row: int(row[0]))


@pytest.mark.slow
def test_the_counter_counts_each_addition_once_while_leaders_are_killed(tmp_path: Path) -> None:
    printed = run_program([str(EXAMPLES / "exactly_once_counter.py")], tmp_path).splitlines()
    assert sum("killing the leader" in line for line in printed) == 3
    assert printed[-1] == "added 300 times; the counter says 300"


@pytest.mark.slow
def test_the_notebook_answers_questions_about_a_log_of_brokers(tmp_path: Path) -> None:
    for package in ("deltalake", "duckdb", "pandas"):
        pytest.importorskip(package, reason=f"{package} is not installed: run make setup-spark")
    printed = run_program([str(EXAMPLES / "log_notebook.py")], tmp_path)
    parts = [part.splitlines() for part in printed.split("\n\n")]
    answers = {part[0]: [line.split() for line in part[2:]] for part in parts}
    assert answers["What came in?"][0][:2] == ["Orders", "340"]
    assert answers["Which customers order most?"][0] == ["anna", "170"]
    lag = answers["What has billing not consumed?"]
    assert sum(int(messages) for _, messages in lag) == 40
    terms = answers["What did the killed leader cost?"]
    assert sum(int(messages) for _, messages, _ in terms) == 340
    assert len(terms) >= 2
    assert answers["Where is the last order?"][0][-1] == "stored"
    assert "Reconciles: yes" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_explains_itself_and_stands_on_its_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert LINES_MIN <= len(text.splitlines()) <= LINES_MAX
    explained = ast.get_docstring(ast.parse(text))
    assert explained is not None
    assert f"python {path.name}" in explained
    assert f"```{{literalinclude}} examples/{path.name}\n" in PAGE


@pytest.mark.parametrize(
    "path", sorted((EXAMPLES / "web").glob("*.py")), ids=lambda path: path.stem
)
def test_a_web_program_is_short_explains_itself_and_stands_on_its_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert ast.get_docstring(ast.parse(text)) is not None
    assert f"```{{literalinclude}} examples/web/{path.name}\n" in WEB_PAGE


def test_the_page_of_examples_includes_no_other() -> None:
    assert PAGE.count("{literalinclude}") == len(list(EXAMPLES.glob("*.py")))
