"""Runs a program that stands in a page of the documentation, as a reader would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def printed_by(program: str, folder: Path, environment: Mapping[str, str], timeout_s: float) -> str:
    """What a program prints that is run in a folder; warnings are errors, and it must succeed."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
