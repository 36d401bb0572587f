"""A group of real processes, as `dledger group` runs it: killed, read, verified."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dledger.free_ports import free_ports
from dledger.local_group import _run_member
from tests.dledger.commands.typed_command import dledger, tailed


class Members:
    """Three `dledger serve` processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.group = subprocess.Popen(
            [sys.executable, "-m", "dledger", "group", "--nodes", "3", "--dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.group.stdout is not None
        self.lines = []
        for line in self.group.stdout:
            self.lines.append(line)
            if line.startswith("ready"):
                return
        raise AssertionError("".join(self.lines))

    def stop(self) -> None:
        self.group.send_signal(signal.SIGINT)
        self.group.communicate(timeout=20)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    running = Members(tmp_path / "group")
    yield running
    if running.group.poll() is None:
        running.stop()


def test_what_was_appended_can_be_read_and_verified(members: Members) -> None:
    folder = members.folder
    lines = dledger("append", "--dir", folder, "one", "two").stdout.splitlines()
    # A member that started late had the leader append an empty entry first.
    one, two = (int(line.split("\t")[0]) for line in lines)
    assert two == one + 1
    assert tailed("--dir", folder, until="two") == ["one", "two"]
    entry = json.loads(dledger("get", "--dir", folder, "--json", two).stdout)
    assert (entry["body"], entry["kind"]) == ("two", "normal")
    status = json.loads(dledger("status", "--dir", folder, "--json").stdout)
    assert sorted(node["role"] for node in status.values()) == ["follower", "follower", "leader"]
    assert "no committed entry 99" in dledger("get", "--dir", folder, 99, ok=False).stderr
    members.stop()
    assert "equal" in dledger("verify", folder).stdout


def test_a_killed_leader_loses_nothing_that_was_acknowledged(members: Members) -> None:
    folder = members.folder
    dledger("append", "--dir", folder, *[f"before-{n}" for n in range(20)])
    status = json.loads(dledger("status", "--dir", folder, "--json").stdout)
    leader = next(node for node, found in status.items() if found["ready"])
    pids = subprocess.run(
        ["pgrep", "-f", f"dledger serve .*--node {leader} .*--dir {folder}"],
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(int(pids.stdout.split()[0]), signal.SIGKILL)
    # The supervisor says which member ended, and stops the others.
    output, _ = members.group.communicate(timeout=30)
    assert f"dledger: {leader} ended with exit code -9" in output
    assert "Traceback" not in output
    again = Members(folder)
    try:
        dledger("append", "--dir", folder, "after")
        bodies = tailed("--dir", folder, until="after")
    finally:
        again.stop()
    assert bodies == [*[f"before-{n}" for n in range(20)], "after"]


def test_leadership_goes_where_the_operator_sends_it(members: Members) -> None:
    folder = members.folder
    for target in ("n0", "n1", "n2"):
        assert (
            dledger("transfer", "--dir", folder, "--to", target).stdout == f"{target} leads group\n"
        )
    dledger("append", "--dir", folder, "one")
    assert dledger("transfer", "--dir", folder).stdout in ("n0 leads group\n", "n1 leads group\n")
    refused = dledger("transfer", "--dir", folder, "--to", "n9", ok=False)
    assert refused.stderr == "dledger: --to: n9 is not one of n0, n1, n2\n"


def test_members_end_with_the_process_that_runs_them(members: Members) -> None:
    members.group.kill()
    members.group.communicate(timeout=10)
    deadline = time.monotonic() + 10
    while _alive(members.folder):
        assert time.monotonic() < deadline, "members outlived their group"
        time.sleep(0.05)


def _alive(folder: Path) -> bool:
    found = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["status"], "say which group", marks=pytest.mark.real_starts),
        (["append", "--peers", "n0=nowhere", "x"], "is not host:port"),
        (["append", "--peers", "n0=127.0.0.1:1", "--timeout", "0.1", "x"], "s: no leader: n0 at "),
        (["serve", "--node", "n9", "--peers", "n0=127.0.0.1:1", "--dir", "x"], "n9 is not one of"),
    ],
)
def test_bad_settings_are_one_line_that_says_what_to_do(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dledger", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def serve(folder: Path, address: str, group: str = "g1", *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "dledger", "serve", "--group", group, "--node", "n0"),
            *("--peers", f"n0={address}", "--dir", str(folder), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve_until_ready(folder: Path, address: str, *bodies: str) -> None:
    process = serve(folder, address)
    assert process.stdout is not None
    assert "listens" in process.stdout.readline()
    if bodies:
        dledger("append", "--group", "g1", "--peers", f"n0={address}", *bodies)
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 0


def refused(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert len(errors.splitlines()) == 1
    return errors


def test_a_data_folder_of_another_group_is_refused(tmp_path: Path, address: str) -> None:
    serve_until_ready(tmp_path, address)
    errors = refused(serve(tmp_path, address, "g2"))
    assert "holds the data of node n0 of group g1, not of node n0 of group g2" in errors


def test_a_port_in_use_is_said_so(tmp_path: Path, address: str) -> None:
    host, port = address.split(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        assert f"{address} is in use: stop the process" in refused(serve(tmp_path, address))


def test_a_folder_that_is_open_already_is_refused(tmp_path: Path, address: str) -> None:
    process = serve(tmp_path, address)
    assert process.stdout is not None
    process.stdout.readline()
    other = f"127.0.0.1:{free_ports(1)[0]}"
    assert "open in another process" in refused(serve(tmp_path, other))
    process.terminate()
    process.communicate(timeout=10)


def test_a_corrupt_segment_is_named_and_left_as_it_is(tmp_path: Path, address: str) -> None:
    serve_until_ready(tmp_path, address, *[f"entry-{n}" for n in range(5)])
    (segment,) = (tmp_path / "dledger-n0" / "data").iterdir()
    content = segment.read_bytes()
    broken = content.replace(b"entry-2", b"entry-X")
    assert broken != content
    segment.write_bytes(broken)
    errors = refused(serve(tmp_path, address))
    assert str(segment) in errors
    assert "dledger repair" in errors
    assert segment.read_bytes() == broken
    assert "CRC" in dledger("verify", tmp_path, ok=False).stderr


def test_garbage_closes_its_own_connection_and_no_other(tmp_path: Path, address: str) -> None:
    host, port = address.split(":")
    process = serve(tmp_path, address)
    assert process.stdout is not None
    process.stdout.readline()
    with socket.create_connection((host, int(port))) as garbage:
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while garbage.recv(1000):  # it is told why
            continue
    assert dledger("append", "--group", "g1", "--peers", f"n0={address}", "still here").stdout
    process.terminate()
    _, errors = process.communicate(timeout=10)
    assert "the other side speaks HTTP" in errors


def test_a_killed_member_that_was_to_sync_later_loses_nothing(tmp_path: Path, address: str) -> None:
    later = ("--flush-interval-ms", "3600000")
    peers = ("--group", "g1", "--peers", f"n0={address}")
    process = serve(tmp_path, address, "g1", *later)
    assert process.stdout is not None
    assert "listens" in process.stdout.readline()
    dledger("append", *peers, "one", "two")
    status = json.loads(dledger("status", *peers, "--json").stdout)["n0"]
    assert status["synced"] < status["committed"]
    process.kill()
    process.communicate(timeout=10)
    process = serve(tmp_path, address, "g1", *later)
    assert process.stdout is not None
    assert "listens" in process.stdout.readline()
    bodies = tailed(*peers, until="two")
    process.kill()
    process.communicate(timeout=10)
    assert bodies == ["one", "two"]


def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path: Path, address: str) -> None:
    serve_until_ready(tmp_path, address, "one")
    segment = next(tmp_path.glob("dledger-n0/data/*"))
    segment.unlink()
    segment.mkdir()  # as unreadable as one without permission, also for root
    for command in ("verify", "dump"):
        ended = dledger(command, tmp_path, ok=False)
        assert ended.returncode == 1
        assert f"{segment} cannot be read: Is a directory" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


# As in a terminal; also where the tests were started in the background, which ignores Ctrl-C.
_GROUP = """
import signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
from dledger.__main__ import main

sys.argv = ["dledger", "group", "--nodes", "3", "--dir", sys.argv[1]]
main()
"""


def test_ctrl_c_while_the_members_of_a_group_still_load_ends_all_without_a_word(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _GROUP, str(tmp_path / "group")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        tasks = Path(f"/proc/{process.pid}/task")  # a child is listed with the thread that made it
        deadline = time.monotonic() + 60
        while sum(len(each.read_text().split()) for each in tasks.glob("*/children")) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert said == ""
    assert process.returncode == 0


async def test_a_member_that_ctrl_c_ended_before_it_had_a_process_group_is_no_error() -> None:
    script = "import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)"
    with trio.move_on_after(1) as ctrl_c:
        await _run_member("n0", [sys.executable, "-c", script])
    assert ctrl_c.cancelled_caught
