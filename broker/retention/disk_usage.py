"""How full the disk is."""

import os
from pathlib import Path


def used_percent(directory: Path) -> float:
    """Return how full the disk of a directory is, as `df` computes it. Raises OSError."""
    found = os.statvfs(directory)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return 100.0 * used / usable if usable else 0.0


def capacity_bytes(directory: Path) -> tuple[int, int]:
    """Return the size of the disk of a directory, and how much of it is free. Raises OSError."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
