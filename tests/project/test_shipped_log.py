"""The example of a log that is shipped does what it says, with processes that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "docs" / "examples" / "shipped_log.py"
# Three hundred appends and one election take seconds; a busy machine takes longer.
TIMEOUT_S = 120


@pytest.mark.forked_programs
@pytest.mark.slow
def test_each_line_reaches_the_subscriber_once_and_in_order(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    killed_subscriber, killed_leader, result = ended.stdout.splitlines()
    assert killed_subscriber == "line 100: killing subscriber"
    assert killed_leader.startswith("line 200: killing n")
    assert result == "300 lines; each once and in order: True"
