"""The wheel of this checkout, for tests that run far from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
# Generous for a busy machine with two cores: it takes two seconds alone.
BUILD_MAX_S: Final = 300


def build_wheel(folder: Path) -> Path:
    """Build it offline into an empty folder; its path."""
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    done = subprocess.run(
        [sys.executable, *build],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    return built
