"""`jepsen-like run` as a process, in the folder of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]
# A run of a minute whose group does not recover takes three minutes on an idle machine. It is less
# than the Makefile's TEST_LIMIT_S, which ends the process of the tests.
RUN_MAX_S = 540


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it with these words; raise TimeoutExpired if it does not end."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "jepsen_like", "run", *words],
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
        cwd=folder,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def valid_run(folder: Path, *words: str, model: str) -> None:
    """Run it in `out`: it has to find nothing, and its history to be valid."""
    ended = run_in(folder, *words, "--out", "out")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"valid ({model})" in ended.stdout
