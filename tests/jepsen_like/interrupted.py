"""Ctrl-C for a command that works in several processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
# Also where the tests themselves were started in the background, which ignores Ctrl-C.
_PROGRAM = """
import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from jepsen_like.__main__ import main

    main()
"""


def interrupted(words: list[str], processes: int) -> tuple[int, bytes]:
    """Interrupt a command once it has started so many processes; return how it ended, and what it
    said.
    """
    # As in a terminal, where Ctrl-C goes to all processes.
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + PATIENCE_S
        while len(children.read_text().split()) < processes:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said
