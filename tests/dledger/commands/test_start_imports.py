"""What a member that starts loads."""

from __future__ import annotations

import subprocess
import sys

# Each takes a tenth of a member's start, or more, and most members never use it.
NOT_NEEDED = ("h11", "prometheus_client", "rich")


def test_a_member_starts_without_what_only_other_commands_need() -> None:
    code = f"import sys, dledger.__main__; print([n for n in {NOT_NEEDED} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "[]"
