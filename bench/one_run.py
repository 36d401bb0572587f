"""One run: three processes are started, loaded and ended."""

from __future__ import annotations

import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from bench.system import Command
from bench.workload import Measured

# A group without output so long after the end of its workload has no leader.
GRACE_S = 60.0
_COMPLAINT_LENGTH = 300


class RunFailed(Exception):
    """A run gave no result; the text says why, in one line."""


def measure(commands: Sequence[Command], complaints: Path, measured_s: float) -> Measured:
    """Start all, wait for the first result, end all. Raises RunFailed.

    Args:
        commands: the processes; each ends with its standard input, or is killed.
        complaints: the file for their standard error.
        measured_s: the length of the workload.
    """
    with complaints.open("wb") as errors:
        processes = start(commands, errors)
        try:
            return first_result(processes, measured_s + GRACE_S)
        except RunFailed as error:
            raise RunFailed(f"{error}{last_complaint(complaints)}") from None
        finally:
            end(processes)


def start(commands: Sequence[Command], errors: IO[bytes]) -> list[subprocess.Popen[bytes]]:
    """Start all, with `errors` for their standard error."""
    return [
        # Without a buffer: a line that waits in one would not wake the selector.
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
        )
        for command in commands
    ]


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill the processes, and wait until all are gone."""
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate()


def first_result(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> Measured:
    """Return the first result that any process prints. Raises RunFailed."""
    with selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(output(process), selectors.EVENT_READ, process)
        while events := selector.select(timeout_s):
            for key, _ in events:
                line = output(key.data).readline()
                if not line:
                    name = Path(key.data.args[0]).name
                    raise RunFailed(f"{name} ended before it had measured anything")
                try:
                    result = Measured.from_line(line.decode(errors="replace"))
                except ValueError as error:
                    raise RunFailed(str(error)) from None
                if result is not None:
                    return result
    raise RunFailed(f"no result within {timeout_s:g} s")


def output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdout is None:
        raise ValueError("started without a pipe")
    return process.stdout


def last_complaint(complaints: Path) -> str:
    """Return the last line of standard error as the end of a sentence, or an empty text."""
    lines = complaints.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; the last complaint: {last[:_COMPLAINT_LENGTH]}" if last else ""
