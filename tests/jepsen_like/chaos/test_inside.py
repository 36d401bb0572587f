"""The library that stands before the C library in a member, in small programs of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from jepsen_like.chaos.inside.insides import Insides, LibraryMissing
from jepsen_like.chaos.inside.steering import EVERY_SYNC, Steering
from jepsen_like.chaos.nemeses.inside_faults import STALLED_MS

PATIENCE_S = 30.0

# Answers each line by what the line evaluates to.
PROGRAM = """
import datetime, os, sys, threading, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def tried(call):
    try:
        return call(file)
    except OSError as error:
        return error.strerror
def seconds(call, *arguments):
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Child:
    """A program whose calls are steered."""

    def __init__(self, process: subprocess.Popen[str], steering: Steering) -> None:
        self._process = process
        self.steering = steering

    def ask(self, expression: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.tell(expression)
        return self._process.stdout.readline().strip()

    def tell(self, expression: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def until_true(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def made_insides(folder: Path) -> Insides:
    try:
        return Insides(folder)
    except LibraryMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def one_child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = tmp_path_factory.mktemp("run")
    with closing(made_insides(folder / "inside")) as insides:
        command = insides.command("n0", [sys.executable, "-c", PROGRAM, str(folder / "file")])
        with running(command) as process:
            one = Child(process, insides.steerings["n0"])
            assert one.ask("'ready'") == "ready"
            yield one


@pytest.fixture
def child(one_child: Child) -> Iterator[Child]:
    yield one_child
    one_child.steering.heal()


def test_a_process_that_is_not_steered_does_as_without_the_library(child: Child) -> None:
    steering = child.steering
    assert steering.is_loaded
    before = steering.syncs_delayed, steering.syncs_failed  # by tests that came first
    for call in ("os.fsync", "os.fdatasync"):
        assert child.ask(f"tried({call})") == "None"
    assert child.ask("tried(lambda file: os.fsync(99))") == "Bad file descriptor"
    assert (steering.syncs_delayed, steering.syncs_failed) == before


@pytest.mark.parametrize("call", ["os.fsync", "os.fdatasync"])
def test_syncs_fail_as_often_as_they_are_told_to(call: str, child: Child) -> None:
    before = child.steering.syncs_failed
    child.steering.fail_syncs(2)
    said = [child.ask(f"tried({call})") for _ in range(3)]
    assert said == ["Input/output error", "Input/output error", "None"]
    child.steering.fail_syncs(EVERY_SYNC)
    assert {child.ask(f"tried({call})") for _ in range(3)} == {"Input/output error"}
    assert child.steering.syncs_failed == before + 5
    assert [path.name for path in child.steering.failed_since(before)] == ["file"] * 5


def test_of_many_syncs_that_fail_the_last_files_are_known(child: Child) -> None:
    before = child.steering.syncs_failed
    child.steering.fail_syncs(EVERY_SYNC)
    other = "lambda file: os.fsync(os.open('/', os.O_RDONLY))"
    child.ask("[tried(os.fsync) for _ in range(20)]")
    child.ask(f"tried({other})")
    failed = child.steering.failed_since(before)
    assert [str(path) for path in failed[-1:]] == ["/"]
    assert [path.name for path in failed[:-1]] == ["file"] * 15


@pytest.mark.parametrize("call", ["os.fsync", "os.fdatasync"])
def test_syncs_take_longer_and_then_do_not(call: str, child: Child) -> None:
    before = child.steering.syncs_delayed
    child.steering.delay_syncs(60)
    assert float(child.ask(f"seconds({call}, file)")) >= 0.06
    child.steering.heal()
    child.ask(f"tried({call})")
    assert child.steering.syncs_delayed == before + 1


def test_a_sync_that_is_held_up_ends_when_the_disk_is_healed(child: Child) -> None:
    before = child.steering.syncs_delayed
    child.steering.delay_syncs(STALLED_MS)
    child.tell("tried(os.fdatasync)")
    until_true(lambda: child.steering.syncs_delayed > before)
    child.steering.heal()
    assert child.answer() == "None"


@pytest.mark.parametrize("step_s", [-100.25, 3600.5])
@pytest.mark.parametrize(
    "clock",
    [
        "time.time()",
        "time.time_ns() / 1e9",
        "time.clock_gettime(time.CLOCK_REALTIME)",
        "datetime.datetime.now().timestamp()",
    ],
)
def test_the_wall_clock_is_stepped_and_the_monotonic_one_is_not(
    clock: str, step_s: float, child: Child
) -> None:
    ahead = f"{clock} - time.monotonic()"
    before = float(child.ask(ahead))
    child.steering.step_clock(round(step_s * 1000))
    assert float(child.ask(ahead)) - before == pytest.approx(step_s, abs=0.5)
    child.steering.heal()
    assert float(child.ask(ahead)) - before == pytest.approx(0.0, abs=0.5)


def test_a_lock_is_waited_for_as_long_as_without_a_step(child: Child) -> None:
    assert child.ask("exec('lock = threading.Lock(); lock.acquire()', globals())") == "None"
    for step_ms in (-3_600_000, 3_600_000):
        child.steering.step_clock(step_ms)
        assert 0.05 <= float(child.ask("seconds(lock.acquire, True, 0.05)")) < 30
