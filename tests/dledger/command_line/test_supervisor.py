"""The notifications that a server sends to the socket in NOTIFY_SOCKET, as to systemd."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger.command_line.supervisor import Supervisor


@pytest.fixture(params=["file", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"@{uuid.uuid4()}" if request.param == "abstract" else str(tmp_path / "notify")


@pytest.fixture
def heard(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + address[1:] if address.startswith("@") else address)
        listening.setblocking(False)
        yield listening


async def test_a_manager_hears_of_the_start_reloads_the_end_and_the_loop(
    address: str, heard: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"}
    with closing(Supervisor({**environment, "WATCHDOG_PID": str(os.getpid())})) as supervisor:
        supervisor.ready()
        with supervisor.reloading():
            supervisor.status("two\nlines \x1b[2J" + "x" * 1000)
        supervisor.stopping()
        told = [heard.recv(4096).decode() for _ in range(5)]
        assert told[0] == "READY=1"
        assert told[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert told[2].startswith("STATUS=two\\nlines \\x1b[2Jxx")
        assert len(told[2]) < 300
        assert told[3:] == ["READY=1", "STOPPING=1"]
        with trio.move_on_after(4):  # the loop runs for so long
            await supervisor.answer_watchdog()
        assert [heard.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        with pytest.raises(BlockingIOError):
            heard.recv(4096)


async def test_the_watchdog_of_another_process_or_none_gets_no_answer() -> None:
    for environment in (
        {},
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
    ):
        with closing(Supervisor(environment)) as supervisor:
            await supervisor.answer_watchdog()
            supervisor.ready()


@pytest.mark.parametrize("gone", ["/nowhere/notify", "@nobody", "vsock:2:1", "x" * 5000, "\0"])
def test_a_manager_that_cannot_be_told_is_warned_of_once(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Supervisor({"NOTIFY_SOCKET": gone})) as supervisor:
        supervisor.ready()
        supervisor.stopping()
    assert len(caplog.messages) == 1
    assert "NOTIFY_SOCKET" in caplog.messages[0]
