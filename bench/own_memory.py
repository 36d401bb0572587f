"""Touches memory, so that the host gives a virtual machine all the memory that it promises.

Many hosts give a guest a page when it is first touched, and take back free ones. A program that
writes much, to the page cache too, then pays for each new page: 13 us for 4 KiB where the figures
in the documentation were measured, a quarter of all processor time of a group under load. A machine
that has its memory does not, and neither does one that was busy for a while.
"""

from __future__ import annotations

import mmap

_MIB = 1 << 20


def touch_memory(size_mib: int) -> None:
    """Write to each page of so much memory, and free it for the next processes that need some.

    Raises MemoryError or OSError if there is not so much.
    """
    if size_mib == 0:
        return
    size = size_mib * _MIB
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
