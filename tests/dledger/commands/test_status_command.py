"""`dledger status`: at once, and watched, in a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.dledger.commands.typed_command import Ended, typed


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("status") / "group"
    process = subprocess.Popen(
        [sys.executable, "-m", "dledger", "group", "--nodes", "3", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert any(line.startswith("ready") for line in process.stdout)
    yield folder
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


def status(
    folder: Path, *options: str, columns: int | None = 160
) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "dledger", "status", "--dir", str(folder), *options],
        env=others if columns is None else {**others, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def looked(folder: Path, *options: str, columns: int | None = 160) -> Ended:
    """The same in this process, which is as wide as its variables say."""
    with patch.dict(os.environ):
        os.environ.pop("COLUMNS", None)
        environment = {} if columns is None else {"COLUMNS": str(columns)}
        return typed("status", "--dir", folder, *options, environment=environment)


def test_a_group_is_shown_with_how_far_each_member_is(group: Path) -> None:
    shown = status(group)
    assert shown.returncode == 0, shown.stderr
    for word in ("leader (ready)", "follower", "lag", "sync", "contact", "% full"):
        assert word in shown.stdout
    assert " ms" in shown.stdout


@pytest.mark.parametrize("columns", [60, 80, 100, 120])
def test_what_has_no_room_is_left_out_whole_and_named(group: Path, columns: int) -> None:
    shown = looked(group, columns=columns)
    assert shown.returncode == 0, shown.stderr
    table = shown.stdout
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= columns
    for word in ("n0", "n1", "n2", "leader (ready)", "term", "committed", "applied", "lag"):
        assert word in table
    assert "snapshot" in table[table.index("no room for") :]
    for word in ("snapshot", "disk", "contact", "address", "sync"):
        assert table.count(word) == 1, f"{word} is a column, or it is named"


def test_in_a_pipe_there_is_room_for_everything(group: Path) -> None:
    shown = looked(group, columns=None)
    assert "no room" not in shown.stdout
    assert "…" not in shown.stdout
    for word in ("snapshot", "disk", "contact", "address", "sync"):
        assert shown.stdout.count(word) == 1


def test_in_a_pipe_every_look_is_a_table_of_its_own(group: Path) -> None:
    shown = looked(group, "--watch", "--interval", "0.2", "--count", "3")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("leader (ready)") == 3
    assert "\x1b" not in shown.stdout


def test_with_json_every_look_is_a_line(group: Path) -> None:
    shown = looked(group, "--watch", "--json", "--interval", "0.2", "--count", "2")
    looks = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [sorted(look) for look in looks] == [["n0", "n1", "n2"]] * 2
    leader = next(said for said in looks[0].values() if said["role"] == "leader")
    assert leader["syncs"] > 0
    assert leader["log_bytes"] > 0
    assert leader["disk_total_bytes"] > leader["disk_free_bytes"] > 0
    assert all(peer["answered_s"] < 5 for peer in leader["peers"].values())
    follower = next(said for said in looks[0].values() if said["role"] == "follower")
    assert 0 <= follower["leader_contact_s"] < 5


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C, and so does what that starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_in_a_terminal_it_is_drawn_over_and_ends_cleanly_at_ctrl_c(group: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dledger", "status", "--dir", str(group)),
            *("--watch", "--interval", "0.2"),
        ],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
    )
    os.close(theirs)
    try:
        seen = b""
        deadline = time.monotonic() + 60
        while seen.count(b"(ready)") < 3:
            assert time.monotonic() < deadline, seen
            readable, _, _ = select.select([ours], [], [], 1.0)
            if readable:
                seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while process.poll() is None:
            assert time.monotonic() < deadline
            readable, _, _ = select.select([ours], [], [], 0.1)
            if readable:
                try:
                    seen += os.read(ours, 65536)
                except OSError:
                    break  # the terminal went with its process
        assert process.wait(30) == 0
        assert b"Traceback" not in seen
        assert b"\x1b[" in seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize(("words", "code"), [([], 130), (["--watch"], 0)])
def test_ctrl_c_while_members_are_asked_ends_without_a_word(words: list[str], code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        peers = f"n0=127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "dledger", "status", "--peers", peers, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            asked, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=60)
        asked.close()
    assert told == b""
    assert process.returncode == code


def test_a_group_that_is_down_is_told_and_ends_with_an_error() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "dledger", "status", "--peers", "n0=127.0.0.1:1,n1=127.0.0.1:2"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 1
    assert shown.stdout.startswith("CRITICAL  no quorum: 0 of 2 voters answer")
    assert len(shown.stderr.splitlines()) == 1
