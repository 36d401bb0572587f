"""Real runs, as short as they can be: processes, results, and leaders that are lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import dledger
from bench import client_rates, disk_limit, relayed
from bench.__main__ import main
from bench.machine import touch_memory
from bench.one_run import RunFailed, measure
from bench.peers.watched import WATCHED
from bench.place import make_place
from bench.read_back import NUMBER, count_lost, numbers_in
from bench.toolchain import Toolchain
from bench.watch import KILL, STOP, Watch, is_stopped
from bench.workload import Measured, Workload

RESULT = '{"entries_per_s": 1234.0, "median_ms": 1.5, "p99_ms": 2.5, "failed": 0}'
SHORT = ["--rounds", "1", "--seconds", "0.2", "--warm-up", "0.1"]
SERVES = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def prints(*lines: str) -> list[str]:
    """A process that prints lines and goes on."""
    program = f"import sys\nfor line in {list(lines)!r}: print(line, flush=True)\nsys.stdin.read()"
    return [sys.executable, "-c", program]


def test_the_first_result_of_any_process_is_taken(tmp_path: Path) -> None:
    commands = [SERVES, prints("hello", '{"role": "leader"}', RESULT)]
    assert measure(commands, tmp_path / "complaints", 1.0) == Measured(1234.0, 1.5, 2.5)


def test_a_process_that_ends_early_fails_the_run_with_its_last_words(tmp_path: Path) -> None:
    ends = [sys.executable, "-c", "import sys; print('no room', file=sys.stderr)"]
    with pytest.raises(RunFailed, match=r"ended before .*; the last complaint: no room"):
        measure([SERVES, ends], tmp_path / "complaints", 1.0)


def test_a_run_in_which_nothing_was_acknowledged_fails(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="nothing was acknowledged, 9 appends failed"):
        measure([prints('{"entries_per_s": 0.0, "failed": 9}')], tmp_path / "complaints", 1.0)


def fake_peers(folder: Path, built: str = f"echo '{RESULT}'; exec cat") -> None:
    """An etcd that only waits, and a Go whose every program does what `built` says."""
    folder.mkdir()
    programs = {
        "etcd": 'if [ "$1" = --version ]; then echo "etcd Version: 9.9"; else exec cat; fi',
        "go": f'while [ "$1" != -o ]; do shift; done; cp {folder}/built "$2"',
        "built": built,
    }
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def bench(tmp_path: Path, path: str, *words: str) -> str:
    options = ["--dir", str(tmp_path / "data"), "--build", str(tmp_path / "build")]
    result = CliRunner().invoke(main, [*words, *options], env={"PATH": path})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.forked_programs
def test_ours_is_measured_and_peers_that_are_missing_are_skipped(tmp_path: Path) -> None:
    kept, page = tmp_path / "runs.json", tmp_path / "page.md"
    words = ["--peers", "etcd,dragonboat,java", "--bodies", "16", "--in-flight", "64"]
    files = ["--json", str(kept), "--markdown", str(page)]
    told = bench(tmp_path, "", *words, *files, *SHORT, "--touch-memory", "8")
    assert "etcd is skipped: etcd is not found: install Debian's etcd-server" in told
    assert "Dragonboat, tan is skipped: go is not found" in told
    assert "Java DLedger is skipped: java is not found" in told
    found = json.loads(kept.read_text())
    assert [run["system"] for run in found["runs"]] == ["append", "submit", "append_many"]
    assert all(run["entries_per_s"] > 0 and run["failed"] == 0 for run in found["runs"])
    assert found["versions"] == [f"dledger {dledger.__version__}"]
    assert "| dledger, append_many of 64 |" in page.read_text()
    assert "Before each run 8 MiB of memory were touched" in page.read_text()
    assert page.read_text().split("\n\n")[-2].startswith("### Bodies of 16 bytes")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.forked_programs
def test_a_peer_stands_beside_ours_in_the_table(tmp_path: Path) -> None:
    fake_peers(tmp_path / "bin")
    words = ["--peers", "etcd", "--bodies", "16", "--in-flight", "1"]
    told = bench(tmp_path, f"{tmp_path / 'bin'}:{os.defpath}", *words, *SHORT)
    (row,) = [line for line in told.splitlines() if line.startswith("|") and "etcd" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:7] == ["1", "etcd", "1,234", "1,234", "1,234", "1.50", "2.50"]
    assert cells[8].endswith(" x")


@pytest.mark.forked_programs
def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    fake_peers(tmp_path / "bin", built="echo no leader >&2; exit 3")
    words = ["--peers", "etcd", "--bodies", "16", "--in-flight", "1"]
    told = bench(tmp_path, f"{tmp_path / 'bin'}:{os.defpath}", *words, *SHORT)
    assert "etcd, 16 B, 1 in flight, round 1: etcd ended before" in told
    assert "the last complaint: no leader" in told
    assert "| dledger, submit" in told


@pytest.mark.parametrize(
    "words",
    [
        ["--peers", "nobody"],
        ["--bodies", "x"],
        ["--in-flight", "0"],
        ["--rounds", "0"],
        ["failover", "--peers", "nobody"],
        ["failover", "--times", "0"],
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_memory_that_the_machine_has_not_got_is_not_touched(tmp_path: Path) -> None:
    words = ["--peers", "none", "--dir", str(tmp_path), "--touch-memory", "1000000000"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "--touch-memory 1000000000: at most" in result.output


def test_each_page_of_the_memory_is_touched() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    touch_memory(0)
    nothing = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    touch_memory(32)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - nothing
    # Pages may be larger than 4 KiB; then there are fewer.
    assert nothing - before < 16 <= faults


# --- the limit --------------------------------------------------------------------------------


def test_the_limit_overwrites_the_same_file_with_what_could_be_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_limit, "FILE_BYTES", 32 * 1024)
    workload = Workload(in_flight=100, body_bytes=16, warm_up_s=0.0, measured_s=0.3)
    offsets: list[int] = []
    real_write = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if len(data) == 100 * (16 + 48):
            offsets.append(offset)
        return real_write(fd, data, offset)

    monkeypatch.setattr("bench.disk_limit.os.pwrite", pwrite)
    started: list[bool] = []
    latencies_s = disk_limit.write_and_sync(
        tmp_path / "file", workload, lambda: started.append(True)
    )
    assert started == [True]
    assert len(latencies_s) == len(offsets) > 0
    # Five fit into the file; then it is overwritten from its beginning.
    assert offsets == [(at % 5) * 6400 for at in range(len(offsets))]


def test_the_limit_of_one_in_flight_has_its_round_trips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_limit, "three_at_once", lambda *_: [[0.001] * 4, [0.002] * 3, [1.0]])
    monkeypatch.setattr(disk_limit, "round_trip_s", lambda: 0.004)
    result = disk_limit.limit(tmp_path, Workload(in_flight=1), round_trips=2)
    assert result.entries_per_s == pytest.approx(100.0)
    assert result.median_ms == pytest.approx(10.0)


def test_a_round_trip_goes_to_another_process_and_back() -> None:
    assert 0 < disk_limit.round_trip_s(measured_s=0.02) < 1


# --- lost leaders -----------------------------------------------------------------------------


async def test_the_numbers_of_clients_are_found_in_the_files(tmp_path: Path) -> None:
    address = make_place(tmp_path / "place").peers["n0"]
    config = dledger.NodeConfig(
        group="bench",
        node_id="n0",
        peers={"n0": address},
        data_dir=tmp_path / "n0",
        election_timeout_ms=100,
        heartbeat_interval_ms=20,
        new=True,
    )
    async with dledger.open_node(config, dledger.WithSessions(dledger.LogOnly())) as node:
        async with node.session() as session:
            await session.append_many([NUMBER.pack(number) + b"rest" for number in (1, 2, 3)])
        await node.append(NUMBER.pack(9))
        await node.append(b"short")
    assert numbers_in(tmp_path / "n0") == {1, 2, 3, 9}
    acknowledged = b"".join(map(NUMBER.pack, (1, 2, 3, 4, 9)))
    assert count_lost(acknowledged, [tmp_path / "n0"]) == 1  # nobody has 4


def test_what_only_a_minority_has_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {"n0": {1, 2, 3}, "n1": {1, 2}, "n2": {1}}
    monkeypatch.setattr("bench.read_back.numbers_in", lambda each: logs[each.name])
    acknowledged = b"".join(map(NUMBER.pack, (1, 2, 3)))
    assert count_lost(acknowledged, [Path(each) for each in logs]) == 1


def test_a_stopped_process_is_seen_to_be_stopped() -> None:
    with subprocess.Popen(SERVES, stdin=subprocess.PIPE) as process:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(process.pid)
        process.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.long
def test_ours_loses_its_leaders_and_nothing_else(tmp_path: Path) -> None:
    (watched,) = [each for each in WATCHED if each.key == "dledger"]
    watching = watched.prepare(Toolchain(tmp_path / "build"))._replace(settled_s=0.5)
    workload = Workload(in_flight=2, body_bytes=16)
    with Watch(watching, make_place(tmp_path / "group"), workload) as watch:
        waits_ms = [watch.take_leader(fault) for fault in (KILL, STOP)]
        verdict = watch.verdict()
    assert all(wait_ms is None or wait_ms > 0 for wait_ms in waits_ms)
    assert verdict.acknowledged > 0
    assert verdict.lost == 0


@pytest.mark.long
def test_sends_by_a_follower_are_compared_with_direct_ones(tmp_path: Path) -> None:
    arguments = ["--rounds", "1", "--seconds", "0.4", "--in-flight", "2", "--dir", str(tmp_path)]
    ran = CliRunner().invoke(relayed.main, arguments)
    assert ran.exit_code == 0, ran.output
    assert "direct" in ran.output
    assert "relayed" in ran.output
    assert not list(tmp_path.iterdir())  # its folder is removed
    ran = CliRunner().invoke(relayed.main, ["--in-flight", "some"])
    assert "'some' is not a list of numbers" in ran.output


@pytest.mark.long
def test_the_rates_of_the_client_are_measured_in_every_way(tmp_path: Path) -> None:
    arguments = ["--rounds", "1", "--seconds", "0.2", "--consumed", "2000", "--at-once", "500"]
    ran = CliRunner().invoke(client_rates.main, [*arguments, "--dir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    for way in ("1000 tasks", "send_many", "send_batch of 256", "pull", "push"):
        assert way in ran.output
