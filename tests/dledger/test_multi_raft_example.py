"""The program in docs/multi-raft.md does what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "multi-raft.md"


def test_the_bank_of_the_documentation_knows_all_balances(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"<!-- run -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PAGE.parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    accounts = ["alice", "bob", "carol", "dave"]
    assert ended.stdout == "".join(f"{account} 123\n" for account in accounts)
