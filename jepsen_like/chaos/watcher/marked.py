"""Finds and kills the processes that a run has started, and those that they started.

They inherit a variable of the environment. A signal at the death of the parent (`PR_SET_PDEATHSIG`)
would not do: it comes at the end of the thread that forked, and trio forks in threads that end
after some idle seconds. Children do not inherit it either.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from dledger.declared_error import DeclaredError

VARIABLE = "JEPSEN_LIKE_RUN"
PROCESSES = Path("/proc")
# A process that is being started while its parent dies may only be seen at a later look.
LOOKS_IN_VAIN = 3
LOOK_EVERY_S = 0.02
# A process that waits for a disk in the kernel dies late.
GONE_TIMEOUT_S = 15.0


class StillThere(DeclaredError):
    """Processes do not die. Its text says which."""

    problem: str


def can_find() -> bool:
    """Return whether this system shows the environment of processes."""
    return (PROCESSES / "self" / "environ").exists()


def kill_marked(mark: str) -> None:
    """Kill -9 all processes with a mark except this one. Raises StillThere."""
    in_vain = 0
    give_up_s = time.monotonic() + GONE_TIMEOUT_S
    while in_vain < LOOKS_IN_VAIN:
        found = list(_marked(mark))
        for pid in found:
            _kill(pid, mark)
        in_vain = 0 if found else in_vain + 1
        if time.monotonic() > give_up_s:
            raise StillThere(f"processes {found} do not die")
        time.sleep(LOOK_EVERY_S)


def _marked(mark: str) -> Iterator[int]:
    for entry in PROCESSES.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _has(entry, mark):
            yield int(entry.name)


def _has(process: Path, mark: str) -> bool:
    try:
        environment = (process / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has ended, or is another user's
    return f"{VARIABLE}={mark}".encode() in environment.split(b"\0")


def _kill(pid: int, mark: str) -> None:
    """Kill the process of a number, unless it has ended and the number is another process's."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _has(PROCESSES / str(pid), mark):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
