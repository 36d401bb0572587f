"""How full the disk is."""

import os
from pathlib import Path


def used_percent(directory: Path) -> float:
    """The share of the disk under a directory that is used, as `df` tells it. Raises OSError."""
    found = os.statvfs(directory)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return 100.0 * used / usable if usable else 0.0


def capacity_bytes(directory: Path) -> tuple[int, int]:
    """How large the disk under a directory is, and how much of it can be used. Raises OSError."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
