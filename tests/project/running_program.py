"""A program in a process of its own, of which a test reads the lines as they come."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

PROJECT = Path(__file__).parent.parent.parent
# Generous for a busy machine: what is waited for comes in one or two seconds on an idle one.
LINE_MAX_S = 120


class RunningProgram:
    """Python with these arguments; killed at the end of the block."""

    def __init__(self, arguments: list[str], folder: Path, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=_environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> RunningProgram:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, pattern: str) -> re.Match[str]:
        """Read lines until one matches. Raises AssertionError when the program ends before that."""
        seen: list[str] = []
        while True:
            line = self._lines.get(timeout=LINE_MAX_S)
            assert line is not None, f"it ended without {pattern!r}:\n" + "\n".join(seen)
            seen.append(line)
            if found := re.fullmatch(pattern, line):
                return found


def run_program(arguments: list[str], folder: Path, **environment: str) -> str:
    """What it prints. Raises AssertionError when it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=LINE_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {"PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1", **more}
