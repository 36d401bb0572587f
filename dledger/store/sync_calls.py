"""The system calls that make written data durable.

Linux: `fdatasync` for a file's content and length, `fsync` for a folder's names. macOS returns from
`fsync` when the drive has the data in its cache, which a power cut empties; its equivalent of
Linux's sync is `F_FULLFSYNC`. If a file system refuses that, nothing is durable, so the error goes
to the caller.
"""

from __future__ import annotations

import fcntl
import os
import sys

if sys.platform == "darwin":

    def sync_data(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

    def sync_names(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync_data(descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_names(descriptor: int) -> None:
        os.fsync(descriptor)
