"""The watcher of a run: `python -m jepsen_like.chaos.watcher MARK PREFIX [FOLDER]`.

It waits until its standard input ends, which happens when the run ends, however it does. Then it
kills the processes of the run, removes its namespaces and unmounts its disks. A run that ended in
order has left nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from jepsen_like.chaos.disks import claim_disks, take_down
from jepsen_like.chaos.links.namespaces import remove_namespaces
from jepsen_like.chaos.watcher.marked import StillThere, kill_marked


def main() -> None:
    """Wait for the end of the run, and clear away."""
    mark, prefix, *folders = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the run
    for folder in folders:
        claim_disks(Path(folder) / "data")
    while os.read(sys.stdin.fileno(), 1024):
        pass
    try:
        kill_marked(mark)
    except StillThere as error:
        print(f"jepsen-like: {error}", file=sys.stderr)
    remove_namespaces(prefix)
    for folder in folders:
        for data in sorted((Path(folder) / "data").glob("*")):
            if data.is_dir():
                take_down(data)


if __name__ == "__main__":
    main()
