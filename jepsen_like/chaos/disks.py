"""A small file system for each member, for runs that fill disks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Room for the logs of some minutes, and quickly filled.
DISK_MIB = 48


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small tmpfs on a folder during a block; tell whether that worked.

    What it holds in the end stays in the folder. It needs root.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "jepsen-like", str(folder)]
    if os.geteuid() != 0 or not _done(["mount", *options]):
        yield False
        return
    try:
        yield True
    finally:
        kept = folder.with_name(f"{folder.name}.kept")
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("filler"))
        if not _done(["umount", str(folder)]):
            _done(["umount", "--lazy", str(folder)])
        shutil.rmtree(folder)
        kept.rename(folder)


def _done(command: list[str]) -> bool:
    ended = subprocess.run(command, capture_output=True, check=False)
    return ended.returncode == 0
