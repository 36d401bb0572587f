"""`jepsen-like run` on real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chaos.dirty import DIRTY_BROKERS, DIRTY_SERVICES, shown_by
from jepsen_like.chaos.disks import powered_disk
from jepsen_like.chaos.inside.insides import LibraryMissing, built_library
from jepsen_like.chaos.links.namespaces import why_not
from jepsen_like.chaos.nemeses.schedule import Fault
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.run import Run
from jepsen_like.history.reading import read_history
from jepsen_like.mutants.mutant import Mutant
from tests.jepsen_like.chaos.run_process import RUN_MAX_S, run_in, valid_run

PROJECT = Path(__file__).parents[3]

NEMESIS_OF_THE_PAGE = re.compile(
    r"<!-- file stutter.py -->\n```python\n(?P<text>.*?)```\n", re.DOTALL
)

_NAMESPACES = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_in(cwd, *arguments)


def has_powered_disks(folder: Path) -> bool:
    with powered_disk(folder / "disk") as made:
        return made


def has_library(folder: Path) -> bool:
    try:
        built_library(folder)
    except LibraryMissing:
        return False
    return True


def processes_with(text: str) -> list[str]:
    """Command lines of running processes that name the folder of a run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in command and int(entry.name) != os.getpid():
                found.append(command)
    return found


@pytest.mark.slow
@pytest.mark.forked_programs
def test_a_run_with_a_nemesis_of_a_user_finds_nothing_wrong_with_a_right_service(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    page = PROJECT / "docs" / "test-your-state-machine.md"
    found = NEMESIS_OF_THE_PAGE.search(page.read_text(encoding="utf-8"))
    assert found is not None
    (tmp_path / "stutter.py").write_text(found["text"])
    nemeses = ("--nemesis", "kill,freeze,stutter:Stutter")
    words = ("--workload", "register", *nemeses, "--time", "4", "--seed", "3")
    ended = run(*words, "--network", "none", "--out", str(folder), cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads((folder / "run.json").read_text())
    assert told["verdict"] == "nothing found"
    assert told["findings"] == []
    assert told["checked"]["model"] == "register"
    assert told["checked"]["operations"] > 100
    events = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    assert {"start", "begin", "end", "healed", "quiet"} <= {event["event"] for event in events}
    stutters = [each for each in events if each["event"] == "begin" and each["kind"] == "stutter"]
    assert stutters
    assert all(len(event["targets"]) == 1 for event in stutters)
    assert re.search(r"^(kill|freeze)-\w+\treads of", ended.stdout, re.MULTILINE), ended.stdout
    assert (folder / "members" / "n0.log").stat().st_size
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "Nothing found: register on 3 members" in report
    assert processes_with(str(folder)) == []


@pytest.mark.long
def test_ctrl_c_ends_the_faults_and_still_checks(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = ["--workload", "set", "--nemesis", "freeze", "--time", "600", "--seed", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "jepsen_like", "run", *words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    history = folder / "history.jsonl"
    end = time.monotonic() + 60
    while not (history.exists() and history.stat().st_size > 20_000) and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=RUN_MAX_S)
    assert process.returncode == 0, output
    assert json.loads((folder / "run.json").read_text())["interrupted"] is True
    assert "valid (set)" in output
    assert processes_with(str(folder)) == []


def run_that_shows(mutant: Mutant, folder: Path) -> subprocess.CompletedProcess[str]:
    """A run that ends with another status than 0, or the last one that was tried.

    Each mistake showed in every one of some runs of a minute. A busy machine does less in a minute.
    """
    for seed, time_s in enumerate((60, 120, 240), 1):
        (cwd := folder / f"{time_s}").mkdir()
        words = (*shown_by(mutant), "--time", str(time_s), "--seed", str(seed))
        if (ended := run(*words, cwd=cwd)).returncode != 0:
            break
    return ended


@pytest.mark.long
@pytest.mark.parametrize("bug", list(DIRTY_SERVICES))
def test_a_run_finds_each_mistake_that_is_made_on_purpose(bug: str, tmp_path: Path) -> None:
    nemesis = DIRTY_SERVICES[bug].nemesis
    if nemesis == "power" and not has_powered_disks(tmp_path):
        pytest.skip("no disks here whose power can be cut")
    if nemesis == "fsync-fails" and not has_library(tmp_path):
        pytest.skip("no C compiler here, or no Linux")
    ended = run_that_shows(DIRTY_SERVICES[bug], tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    # Members without their newest entries may also fail to become a group again.
    told = "violation: not linearizable" if nemesis is None else "violation: "
    assert told in ended.stdout
    assert "again: jepsen-like run --workload register" in ended.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", list(DIRTY_BROKERS))
def test_a_run_finds_each_mistake_that_is_made_in_brokers(name: str, tmp_path: Path) -> None:
    ended = run_that_shows(DIRTY_BROKERS[name], tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "violation: " in ended.stdout


@pytest.mark.long
def test_brokers_lose_no_message_while_clients_and_the_name_server_are_killed(
    tmp_path: Path,
) -> None:
    words = ("--workload", "messages", "--nemesis", "clients,name-server", "--time", "30")
    valid_run(tmp_path, *words, "--seed", "2", "--network", "none", model="queue")
    events = (tmp_path / "out" / "faults.jsonl").read_text()
    assert {"kill-clients", "kill-name-server"} <= set(re.findall(r'"kind": "([\w-]+)"', events))


@pytest.mark.long
def test_brokers_lose_no_message_while_leaders_are_killed_and_frozen(tmp_path: Path) -> None:
    words = ("--workload", "messages", "--nemesis", "kill,freeze", "--time", "20", "--seed", "2")
    valid_run(tmp_path, *words, "--network", "none", model="queue")
    assert processes_with(str(tmp_path)) == []


@pytest.mark.long
@pytest.mark.parametrize("nemesis", ["hostile", "kill,hostile"])
def test_all_traffic_at_once_keeps_its_promises_beside_a_hostile_client(
    nemesis: str, tmp_path: Path
) -> None:
    words = ("--workload", "everything", "--nemesis", nemesis, "--time", "30", "--seed", "2")
    valid_run(tmp_path, *words, "--network", "none", model="parts")
    assert '"nemesis": "hostile"' in (tmp_path / "out" / "faults.jsonl").read_text()
    assert processes_with(str(tmp_path)) == []


@pytest.mark.long
@pytest.mark.parametrize("nemesis", ["kill,freeze", "clients,name-server", "membership"])
@pytest.mark.parametrize(("workload", "model"), [("broadcast", "broadcast"), ("offset", "offsets")])
def test_every_consumer_of_a_broadcast_gets_all_and_no_offset_goes_back(
    workload: str, model: str, nemesis: str, tmp_path: Path
) -> None:
    words = ("--workload", workload, "--nemesis", nemesis, "--time", "20", "--seed", "4")
    valid_run(tmp_path, *words, "--network", "none", model=model)
    events = (tmp_path / "out" / "faults.jsonl").read_text()
    assert {f'"nemesis": "{name}"' in events for name in nemesis.split(",")} == {True}
    assert processes_with(str(tmp_path)) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "nemesis", "seed"),
    [
        ("append", "fsync-slow", 1),
        ("append", "fsync-fails", 1),
        # A log reads the wall clock only where a leader begins: this seed isolates the leader while
        # all clocks are stepped.
        pytest.param("append", "clock,partition", 112, marks=_NAMESPACES),
        ("delay", "fsync-slow", 1),
        ("delay", "fsync-fails", 1),
        ("delay", "clock", 1),
    ],
)
def test_faults_from_inside_of_members_lose_nothing(
    workload: str, nemesis: str, seed: int, tmp_path: Path
) -> None:
    if not has_library(tmp_path):
        pytest.skip("no C compiler here, or no Linux")
    words = ("--workload", workload, "--nemesis", nemesis, "--time", "20", "--seed", str(seed))
    network = () if "partition" in nemesis else ("--network", "none")
    ended = run(*words, *network, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (tmp_path / "out" / "faults.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    begun = {event["nemesis"] for event in events if event["event"] == "begin"}
    assert begun == set(nemesis.split(","))
    assert processes_with(str(tmp_path)) == []


@pytest.mark.long
def test_without_a_compiler_a_run_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--workload", "register", "--nemesis", "clock", "--time", "2", "--seed", "1")
    ended = run(*words, "--network", "none", "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    left_out = json.loads((tmp_path / "out" / "run.json").read_text())["network"]["left_out"]
    assert "faults from inside: there is no C compiler: cc, gcc, clang" in left_out


@pytest.mark.long
@_NAMESPACES
def test_a_member_is_back_soon_after_a_long_cut(tmp_path: Path) -> None:
    plan = RunPlan("register", ("partition",), time_s=14.0, seed=5)
    one = Run(plan, tmp_path, lambda progress: None)
    one.schedule = [Fault(0, "partition", "isolate-random", 2.0, 8.0, 0, "fault 0")]
    trio.run(one.run)
    assert one.result.findings == []
    (cut,) = [event for event in one.result.events if event["event"] == "begin"]
    (end,) = [event for event in one.result.events if event["event"] == "end"]
    healed_ns = end["time_ns"]
    assert isinstance(healed_ns, int)
    reads = [
        operation.ended_ns
        for operation in read_history(one.history).operations
        if operation.ok and [operation.member] == cut["targets"] and operation.function == "read"
    ]
    back_ns = min(at for at in reads if at is not None and at > healed_ns)
    assert back_ns - healed_ns < 2_500_000_000


@pytest.mark.long
@_NAMESPACES
@pytest.mark.parametrize("workload", ["session-counter", "messages"])
def test_clients_are_served_soon_after_their_packets_vanished_for_long(
    workload: str, tmp_path: Path
) -> None:
    plan = RunPlan(workload, ("silence",), time_s=34.0, seed=5)
    one = Run(plan, tmp_path, lambda progress: None)
    one.schedule = [Fault(0, "silence", "clients-cut-long", 4.0, 20.0, 0, "fault 0")]
    trio.run(one.run)
    assert one.result.findings == []
    times = {event["event"]: event["time_ns"] for event in one.result.events}
    begun, end = times["begin"], times["end"]
    assert isinstance(begun, int)
    assert isinstance(end, int)
    ends = [each.ended_ns for each in read_history(one.history).operations if each.ok]
    assert not [at for at in ends if at is not None and begun + 1_000_000_000 < at < end]
    assert min(at for at in ends if at is not None and at > end) - end < 5_000_000_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one of --workload and --service"),
        (("--workload", "register", "--nemesis", "quake"), "no nemesis is named quake"),
        (("--service", "nowhere:Machine"), "cannot import nowhere"),
    ],
)
def test_a_wrong_call_is_one_line_and_starts_nothing(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(main, ["run", *words])
    assert ended.exit_code == 2
    assert said in ended.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").touch()
    ended = CliRunner().invoke(main, ["run", "--workload", "set", "--out", str(tmp_path / "out")])
    assert ended.exit_code == 2
    assert "is not empty" in ended.output


def test_a_run_whose_folder_cannot_be_made_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["--workload", "set", "--out", str(tmp_path / "file" / "out")]
    ended = CliRunner().invoke(main, ["run", *words])
    assert ended.exit_code == 3
    assert ended.stderr.startswith("the harness failed: ")
    assert "Traceback" not in ended.output
