import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jepsen_like.__main__ import main
from jepsen_like.history.operation import EventType
from jepsen_like.history.writer import HistoryWriter
from tests.jepsen_like.interrupted import interrupted


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(main, ["check", "--jobs", "1", *map(str, words)])
    assert "Traceback" not in result.output
    return result


def register(path: Path, *values: int, read: int | None, model: str | None = None) -> Path:
    """A history of writes, one after another, and a read."""
    header = {} if model is None else {"model": model}
    with HistoryWriter(path, **header) as writer:
        for time_ns, value in enumerate(values):
            for type_ in (EventType.INVOKE, EventType.OK):
                writer.event(0, time_ns, type_, "write", value=value)
        writer.event(1, len(values), EventType.INVOKE, "read")
        writer.event(1, len(values), EventType.OK, "read", value=read)
    return path


def test_a_valid_history_ends_with_status_0(tmp_path: Path) -> None:
    result = run(register(tmp_path / "a.jsonl", 1, 2, read=2))
    assert result.exit_code == 0
    assert "valid: linearizable: 3 operations on 1 object" in result.output
    assert "model cas-register, 3 operations" in result.output


def test_an_invalid_history_ends_with_status_1_and_its_smallest_failing_part(
    tmp_path: Path,
) -> None:
    result = run(register(tmp_path / "a.jsonl", 1, 2, read=1))
    assert result.exit_code == 1
    assert "invalid: not linearizable, lines 2 to 7: 3 operations" in result.output
    assert "No order has a place for\n    read -> 1 (lines 6-7, process 1)" in result.output


def test_a_search_that_is_out_of_time_ends_with_status_2(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "a.jsonl", model="fifo-queue") as writer:
        for type_ in (EventType.INVOKE, EventType.OK):
            for process in range(30):
                writer.event(process, 0, type_, "enqueue", value=process)
        writer.event(0, 0, EventType.INVOKE, "dequeue")
        writer.event(0, 0, EventType.OK, "dequeue", value=99)
    result = run(tmp_path / "a.jsonl", "--time-limit-seconds", "0.2")
    assert result.exit_code == 2
    assert "unknown: given up with 1 object left" in result.output


def test_a_file_that_is_no_history_ends_with_status_3_and_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\x00\x01\x02")
    result = run(path)
    assert result.exit_code == 3
    assert result.stderr == f"{path}:1: not text: there is a zero byte\n"
    assert result.stdout == ""
    assert run(tmp_path / "none.jsonl").exit_code == 3
    assert run(tmp_path).exit_code == 3


def test_a_folder_gets_a_row_for_each_history_and_the_worst_verdict_counts(tmp_path: Path) -> None:
    register(tmp_path / "b.jsonl", 1, read=1)
    (tmp_path / "notes.md").write_text("not a history")
    (tmp_path / "inner").mkdir()
    assert run(tmp_path).exit_code == 0
    register(tmp_path / "inner" / "a.jsonl", 1, read=2)
    (tmp_path / "c.log").write_text("hello\n")
    result = run(tmp_path)
    assert result.exit_code == 1
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[1] for row in rows[:-1]] == ["valid", "unreadable", "invalid"]
    assert rows[-1] == ["3 files: 1 invalid, 1 unreadable, 1 valid"]
    (tmp_path / "inner" / "a.jsonl").unlink()
    assert run(tmp_path).exit_code == 3


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    register(bad, 1, 2, read=1)
    register(good, 1, read=1)
    result = run(bad, good, tmp_path / "none.jsonl", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)["files"]
    assert [one["verdict"] for one in told] == ["invalid", "valid", "unreadable"]
    assert told[0]["figures"]["lines"] == [2, 7]
    assert told[0]["problems"][0]["kind"] == "not linearizable"
    assert "cannot be read" in told[2]["error"]


def test_json_tells_of_any_key(tmp_path: Path) -> None:
    path = tmp_path / "a.edn"
    path.write_text(
        "{:process 0 :type :invoke :f :read :key #{1 {[2] 3}}}\n"
        "{:process 0 :type :ok :f :read :value 5}\n"
    )
    result = run(path, "--model", "register", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["files"][0]["figures"]["key"] == [1, {"(2,)": 3}]


def test_a_folder_without_a_history_is_unreadable_also_beside_others(tmp_path: Path) -> None:
    good = register(tmp_path / "a.jsonl", 1, read=1)
    (tmp_path / "empty").mkdir()
    result = run(good, tmp_path / "empty")
    assert result.exit_code == 3
    assert f"{tmp_path / 'empty'}: no history is in this folder" in result.output
    told = json.loads(run(tmp_path / "empty", "--json").stdout)["files"]
    assert [one["verdict"] for one in told] == ["unreadable"]


def test_the_model_of_the_header_is_used_unless_another_is_named(tmp_path: Path) -> None:
    path = register(tmp_path / "a.jsonl", 1, read=1, model="register")
    assert "model register" in run(path).output
    assert "model cas-register" in run(path, "--model", "cas-register").output
    other = run(path, "--model", "mutex")
    assert other.exit_code == 3
    assert f'{path}:2: "write" is no function of this model' in other.stderr


def test_a_model_that_nobody_names_and_one_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with HistoryWriter(path) as writer:
        writer.event(0, 0, EventType.INVOKE, "jump")
    assert "which model? Name it with --model; its functions are jump" in run(path).stderr
    assert "no model is named jumping: there are " in run(path, "--model", "jumping").stderr


MODELS = """
import os

class Stack:
    initial = ()

    def step(self, state, operation):
        if operation.function == "push":
            return (*state, operation.value)
        if not state:
            return None
        return state[:-1] if not operation.ok or operation.result == state[-1] else None

class NoStep:
    initial = ()

class NoInitial:
    def step(self, state, operation): ...

class WrongStep:
    initial = ()
    def step(self, state): ...

class Needs:
    def __init__(self, size): ...

class Raises:
    initial = ()
    def step(self, state, operation):
        raise KeyError(operation.value)

class Error(Exception): ...

class RaisesItsOwn:
    initial = ()
    def step(self, state, operation):
        raise Error(operation.value)

class RaisesBefore(Stack):
    def problem(self, operation):
        raise Error(operation.value)

class WrongFunctions(Stack):
    functions = 5

class Ends(Stack):
    def step(self, state, operation):
        raise SystemExit(0)

class EndsTheProcess(Stack):
    def step(self, state, operation):
        os._exit(0)

class Prints(Stack):
    def step(self, state, operation):
        print("hello")
        return super().step(state, operation)

class EndsWhenMade(Stack):
    def __init__(self):
        raise SystemExit(0)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of a stack, in the current folder, beside models of users."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "stacks", raising=False)
    (tmp_path / "stacks.py").write_text(MODELS)
    (tmp_path / "program.py").write_text("raise SystemExit(0)")
    with HistoryWriter(tmp_path / "a.jsonl") as writer:
        for value in (1, 2):
            for type_ in (EventType.INVOKE, EventType.OK):
                writer.event(0, 0, type_, "push", value=value)
        writer.event(0, 0, EventType.INVOKE, "pop")
        writer.event(0, 0, EventType.OK, "pop", value=2)
    return tmp_path / "a.jsonl"


def test_a_model_of_the_user_is_found_beside_the_histories(models: Path) -> None:
    assert run(models, "--model", "stacks:Stack").exit_code == 0
    models.write_text(models.read_text().replace('"pop","value":2', '"pop","value":1'))
    result = run(models, "--model", "stacks:Stack")
    assert result.exit_code == 1
    assert "the state is (1, 2)" in result.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none:Stack", "cannot import none"),
        ("stacks:None", "has no None"),
        ("stacks:NoStep", "has no method step"),
        ("stacks:NoInitial", "no attribute `initial`"),
        ("stacks:WrongStep", "does not take a state and an operation"),
        ("stacks:Needs", "without arguments"),
        ("stacks:Raises", "the model Raises failed: KeyError: 1"),
        ("stacks:RaisesItsOwn", "the model RaisesItsOwn failed: Error: 1"),
        ("stacks:RaisesBefore", "the model RaisesBefore failed: Error: 1"),
        ("stacks:WrongFunctions", "the model WrongFunctions failed: TypeError"),
        ("stacks:Ends", "the model Ends failed: SystemExit: 0"),
        ("stacks:EndsWhenMade", "cannot be made without arguments: SystemExit: 0"),
        ("program:Stack", "cannot import program: SystemExit: 0"),
        (":", "cannot import"),
    ],
)
def test_a_model_of_the_user_that_cannot_be_used_is_refused_in_one_line(
    models: Path, name: str, words: str
) -> None:
    result = run(models, "--model", name)
    assert result.exit_code == 3
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_help_teaches_the_models_and_the_exit_status() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for words in ("cas-register", "module:Model", "Exit status:", "Examples:", "2  unknown"):
        assert words in result.output


def test_several_processes_tell_the_same_as_one(tmp_path: Path) -> None:
    for number in range(4):
        register(tmp_path / f"{number}.jsonl", 1, 2, read=number % 2 + 1)
    one = json.loads(run(tmp_path, "--json").stdout)
    command = [sys.executable, "-m", "jepsen_like", "check", "--json", "--jobs", "2", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    several = json.loads(ended.stdout)
    for told in (*one["files"], *several["files"]):
        del told["seconds"]
    assert one == several


def test_a_model_that_ends_the_process_leaves_nothing_known(models: Path) -> None:
    models.with_name("b.jsonl").write_bytes(models.read_bytes())
    words = ["check", "--jobs", "2", "--model", "stacks:EndsTheProcess", "a.jsonl", "b.jsonl"]
    command = [sys.executable, "-m", "jepsen_like", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert "a process that did part of the work has ended" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_a_model_prints_is_not_in_the_answer(models: Path) -> None:
    result = run(models, "--model", "stacks:Prints", "--json")
    assert [one["verdict"] for one in json.loads(result.stdout)["files"]] == ["valid"]
    assert "hello" in result.stderr


def test_a_name_that_is_too_long_for_a_file_is_unreadable() -> None:
    result = run("x" * 5000)
    assert result.exit_code == 3
    assert "cannot be read: File name too long" in result.stderr


def test_ctrl_c_ends_the_command_and_its_workers_without_a_word(tmp_path: Path) -> None:
    lines = ['{"history_format": 1, "model": "fifo-queue"}']
    for type_ in ("invoke", "ok"):
        for number in range(30):
            whole = {"process": number, "time_ns": 0, "type": type_, "function": "enqueue"}
            lines.append(json.dumps({**whole, "value": number}))
    for type_ in ("invoke", "ok"):
        whole = {"process": 0, "time_ns": 0, "type": type_, "function": "dequeue", "value": 99}
        lines.append(json.dumps(whole))
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    words = ["check", "--jobs", "2", str(tmp_path)]
    assert interrupted(words, 3) == (130, b"")  # two workers and a tracker
