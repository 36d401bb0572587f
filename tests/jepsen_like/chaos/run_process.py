"""`jepsen-like run` as a process, in the folder of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def run_in(folder: Path, *words: str, most_s: float) -> subprocess.CompletedProcess[str]:
    """Run it with these words; raise TimeoutExpired after so many seconds."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "jepsen_like", "run", *words],
        capture_output=True,
        text=True,
        timeout=most_s,
        cwd=folder,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
