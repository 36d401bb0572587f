"""Checks that the client of C++ is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from dledger.declared_error import DeclaredError

PACKAGE: Final = "rocketmq==0.4.4"
LOAD_TIMEOUT_S: Final = 60.0


class CppClientMissing(DeclaredError):
    """The client of C++ cannot be loaded here. Its text says what to do, in one line."""

    problem: str


def find_cpp_client() -> None:
    """Load the client in a separate process, as a run does. Raises CppClientMissing."""
    command = [sys.executable, "-c", "import rocketmq.client, rocketmq.exceptions"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CppClientMissing(f"the client of C++ cannot be loaded: {error}") from error
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines()
    said = lines[-1] if lines else f"exit status {done.returncode}"
    raise CppClientMissing(
        f"the client of C++ cannot be loaded ({said}): run `pip install {PACKAGE}`, "
        "which has it for Linux on x86-64"
    )
