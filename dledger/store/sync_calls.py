"""The calls that make what was written durable, as this system has them.

Linux: `fdatasync` for a file's content and length, `fsync` for a folder's names. macOS returns from
`fsync` when the drive has the data in its cache, which a power cut empties: there `F_FULLFSYNC` is
what Linux means by a sync. Where a file system refuses that, nothing can be promised, so the error
is the caller's.
"""

from __future__ import annotations

import fcntl
import os
import sys

if sys.platform == "darwin":

    def sync_data(descriptor: int) -> None:
        """Make the content and the length of a file durable. Raises OSError."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

    def sync_names(descriptor: int) -> None:
        """Make the names in a folder durable. Raises OSError."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync_data(descriptor: int) -> None:
        """Make the content and the length of a file durable. Raises OSError."""
        os.fdatasync(descriptor)

    def sync_names(descriptor: int) -> None:
        """Make the names in a folder durable. Raises OSError."""
        os.fsync(descriptor)
