"""What is started by a fork is a process like one that was started really."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TELLS = """
import json, os, signal, sys
words = open("/proc/self/cmdline", errors="surrogateescape").read().rstrip("\\0").split("\\0")
print(json.dumps({
    "arguments": sys.argv,
    "shown": [words[0], *words[-2:]],
    "environment": os.environ.get("TELLS"),
    "files": len(os.listdir("/proc/self/fd")),
    "folder": os.getcwd(),
    "leads its group": os.getpgid(0) == os.getpid(),
    "leads its session": os.getsid(0) == os.getpid(),
    "interrupts": str(signal.getsignal(signal.SIGINT)),
    "name": __name__,
    "parent": os.getppid(),
    "typed": sys.stdin.read(),
}))
print("and more", file=sys.stderr)
"""
ENDS = {
    "pass": 0,
    "raise SystemExit(3)": 3,
    "raise SystemExit('no')": 1,
    "1 / 0": 1,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import os; os._exit(7)": 7,
    "import threading; threading.Timer(0.1, lambda: print('late')).start()": 0,
    "import warnings; warnings.warn('of this')": 1,
    "import atexit; atexit.register(print, 'at last')": 0,
}
IS_FORKED = "import sys; print('broker.server' in sys.modules)"


def told(folder: Path, **options: Any) -> tuple[dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-c", TELLS, "one", "tw\udcff"],
        **options,
        capture_output=True,
        check=True,
        cwd=folder,
        env={**os.environ, "TELLS": "this"},
        input="typed",
        text=True,
    )
    return json.loads(done.stdout), done.stderr


OPTIONS: list[dict[str, object]] = [{}, {"process_group": 0}, {"start_new_session": True}]


@pytest.mark.forked_programs
def test_a_forked_program_finds_what_it_was_given(tmp_path: Path) -> None:
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a shell may have it ignored
    for options in OPTIONS:
        found, errors = told(tmp_path, **options)
        assert found == {
            "arguments": ["-c", "one", "tw\udcff"],
            "shown": [sys.executable, "one", "tw\udcff"],
            "environment": "this",
            "files": 5,  # its own three, the folder that it lists, and one to start others by
            "folder": str(tmp_path),
            "leads its group": bool(options),
            "leads its session": "start_new_session" in options,
            # Not the handler of this process: a session of Spark may have set its own.
            "interrupts": str(signal.SIG_IGN if ignored else signal.default_int_handler),
            "name": "__main__",
            "parent": os.getpid(),
            "typed": "typed",
        }
        assert errors == "and more\n"


def ended(program: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=False, text=True
    )
    return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]


@pytest.mark.forked_programs
def test_a_forked_program_ends_as_it_says() -> None:
    assert {program: ended(program)[0] for program in ENDS} == ENDS
    assert ended("print('one'); 1 / 0")[1:] == ("one\n", "ZeroDivisionError: division by zero")
    assert ended(IS_FORKED)[1] == "True\n"


@pytest.mark.real_starts
def test_a_real_program_ends_alike() -> None:
    assert {program: ended(program)[0] for program in ENDS} == ENDS
    assert ended("print('one'); 1 / 0")[1:] == ("one\n", "ZeroDivisionError: division by zero")


def test_a_program_is_started_really_unless_its_test_says_otherwise() -> None:
    assert ended(IS_FORKED)[1] == "False\n"


@pytest.mark.forked_programs
def test_a_forked_program_is_stopped_and_killed_like_any_other() -> None:
    begun = subprocess.Popen(
        [sys.executable, "-c", "print('here', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == b"here\n"
        begun.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(begun.pid, os.WUNTRACED)[1])
        assert begun.poll() is None
        begun.kill()
        assert begun.wait(10) == -signal.SIGKILL


@pytest.mark.forked_programs
def test_a_forked_program_compiles_to_the_folder_that_it_was_given(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    (tmp_path / "one.py").touch()
    for program, printed in ((IS_FORKED, b"True\n"), ("import one", b"")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            cwd=tmp_path,
            env=environment,
        )
        assert done.stdout == printed
    (compiled,) = (tmp_path / "compiled").rglob("*.pyc")
    assert compiled.name.startswith("one.")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.forked_programs
@pytest.mark.parametrize("options", [{"env": {**os.environ, "PYTHONHASHSEED": "7"}}, {"umask": 63}])
def test_what_a_fork_cannot_have_is_started_really(options: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IS_FORKED], **options, capture_output=True, check=True
    )
    assert done.stdout == b"False\n"
