"""The wheel, built once: tests that use it run in one process (TOGETHER in tests/conftest.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
# Generous for a busy machine with two cores: it takes two seconds alone.
BUILD_SECONDS_MAX = 300


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from this checkout, in a folder with nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    done = subprocess.run(
        [sys.executable, *build],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    return built
