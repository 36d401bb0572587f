"""What is left of a run that is killed with SIGKILL: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jepsen_like.chaos.disks import image_of, powered_disk
from jepsen_like.chaos.links.namespaces import FOLDER, prefix_of
from jepsen_like.chaos.watcher.marked import VARIABLE, can_find
from jepsen_like.chaos.watcher.watched import watched

PROJECT = Path(__file__).parents[3]
PATIENCE_S = 30.0
LOOK_S = 0.02

pytestmark = pytest.mark.skipif(not can_find(), reason="needs /proc/PID/environ")

# Starts a process as runs do, in a thread of trio's; that one starts another, and both are stopped.
PROGRAM = """
import os, signal, subprocess, sys
from contextlib import ExitStack
from pathlib import Path
import trio
from jepsen_like.chaos.disks import powered_disk, small_disk
from jepsen_like.chaos.watcher.watched import watched

CHILD = "import os, signal, subprocess, sys; " \\
    "other = subprocess.Popen(['sleep', '1000'], start_new_session=True); " \\
    "other.send_signal(signal.SIGSTOP); print(other.pid, flush=True); " \\
    "os.kill(os.getpid(), signal.SIGSTOP)"

async def main():
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        process_group=0,
    )
    told = await process.stdout.receive_some(100)
    print(process.pid, told.decode().strip(), flush=True)
    await trio.sleep_forever()

folder = Path(sys.argv[1])
(folder / "data").mkdir()
with ExitStack() as stack:
    stack.enter_context(watched(folder))
    for name in sys.argv[2:]:
        disk = powered_disk if name == "powered" else small_disk
        stack.enter_context(disk(folder / "data" / name))
        (folder / "data" / name / "log").write_bytes(b"entries")
    trio.run(main)
"""


def runs(pid: int) -> bool:
    """Whether a process is there, and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until_gone(pids: list[int]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < give_up_s, [pid for pid in pids if runs(pid)]
        time.sleep(LOOK_S)


def processes_with(word: str) -> list[int]:
    """Processes, this one excepted, whose command line has a word that begins so."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if any(each.startswith(word.encode()) for each in words):
                found.append(int(entry.name))
    return found


def killed_run(folder: Path, *disks: str) -> list[int]:
    """Kill a program with a watcher; return the processes that it had, once all are gone."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), *disks],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        assert all(runs(pid) for pid in pids)
        watchers = processes_with(f"{program.pid}-")
        program.send_signal(signal.SIGKILL)
        program.wait()
        wait_until_gone([*pids, *watchers])
    assert len(watchers) == 1
    return pids


def test_processes_of_a_killed_run_end_though_they_are_stopped(tmp_path: Path) -> None:
    child, grandchild = killed_run(tmp_path)
    assert not runs(child)
    assert not runs(grandchild)


def test_disks_of_a_killed_run_are_unmounted_and_what_they_hold_stays(tmp_path: Path) -> None:
    with powered_disk(tmp_path / "try") as made:
        if not made:
            pytest.skip("needs root, loop devices and mkfs.ext4")
    killed_run(tmp_path, "powered", "small")
    for name in ("powered", "small"):
        data = tmp_path / "data" / name
        assert not os.path.ismount(data)
        assert not image_of(data).exists()
        assert [path.name for path in data.iterdir()] == ["log"]
        assert (data / "log").read_bytes() == b"entries"


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_namespaces_that_a_process_leaves_are_removed(tmp_path: Path) -> None:
    name = f"{prefix_of(os.getpid())}-left"
    with watched():
        ended = subprocess.run(["ip", "netns", "add", name], check=False)
        if ended.returncode:
            pytest.skip("no namespaces here")
    assert not (FOLDER / name).exists()


def test_after_a_block_its_processes_are_gone_and_others_are_not() -> None:
    with subprocess.Popen(["sleep", "1000"]) as before:
        try:
            with watched():
                inside = subprocess.Popen(["sleep", "1000"])
            assert inside.wait(PATIENCE_S) == -signal.SIGKILL
            assert before.poll() is None
            assert VARIABLE not in os.environ
        finally:
            before.kill()


@pytest.mark.long
def test_a_killed_suite_leaves_no_process_of_its_run(tmp_path: Path) -> None:
    words = ["suite", "membership", "--seed", "1", "--out", str(tmp_path / "suite")]
    with subprocess.Popen(
        [sys.executable, "-m", "jepsen_like", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as suite:
        history = tmp_path / "suite" / "0000-register" / "history.jsonl"
        give_up_s = time.monotonic() + PATIENCE_S
        while not history.exists() and time.monotonic() < give_up_s:
            time.sleep(LOOK_S)
        found = processes_with(str(tmp_path / "suite"))
        os.kill(found[-1], signal.SIGSTOP)  # a member, or the clients
        suite.send_signal(signal.SIGKILL)
        suite.wait()
    assert len(found) > 3
    wait_until_gone(found)
