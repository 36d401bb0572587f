"""A server in a process of its own, which a test signals and whose output it reads."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PROGRAMS = PROJECT / "docs" / "examples" / "web"
PROGRAM_PATH = f"{PROJECT}:{PROGRAMS}"
# `make setup-web` makes it.
WEB_PYTHON = Path(sys.prefix) / "web" / "bin" / "python"
# Generous for a busy machine: what is waited for comes in some seconds on an idle one.
MAX_S = 60.0


class RunningServer:
    """A module of Python, or a file, with these arguments, and all processes that it starts."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        is_file: bool,
    ) -> None:
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [WEB_PYTHON, *([] if is_file else ["-m"]), *arguments],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        """What it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""
        self._process.send_signal(number)

    def until(self, pattern: str, count: int = 1) -> None:
        """Wait until it has printed what matches, so many times."""
        limit = time.monotonic() + MAX_S
        while len(re.findall(pattern, self.text)) < count:
            assert self.exit_code is None, f"it ended:\n{self.text}"
            assert time.monotonic() < limit, f"no {pattern!r} in:\n{self.text}"
            time.sleep(0.02)

    def wait(self, max_s: float = MAX_S) -> float:
        """Wait for its end; return the seconds that it took."""
        begun = time.monotonic()
        try:
            self._process.wait(max_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs on after {max_s} s:\n{self.text}") from None
        return time.monotonic() - begun

    def kill(self) -> None:
        """End it, and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def running_server(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    is_file: bool = False,
) -> Iterator[RunningServer]:
    """Start a server; no process of it is left behind the block."""
    environment = {"PYTHONPATH": PROGRAM_PATH, "PYTHONUNBUFFERED": "1", **environment}
    server = RunningServer(arguments, folder, environment, is_file=is_file)
    try:
        yield server
    finally:
        server.kill()


def wait_for_port(port: int, server: RunningServer) -> None:
    """Wait until a server takes connections."""
    limit = time.monotonic() + MAX_S
    while True:
        assert server.exit_code is None, f"it ended:\n{server.text}"
        assert time.monotonic() < limit, f"nobody listens:\n{server.text}"
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.02)
