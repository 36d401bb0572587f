"""What a node counts while it runs; plain numbers, read by whoever shows them. Pure."""

from __future__ import annotations

from bisect import bisect_left

# Upper ends of the classes of sync times: from a fast NVMe disk to one that hangs.
SYNC_CLASSES_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class Tally:
    """Counts since the node was opened. One writer, the node's loop."""

    __slots__ = (
        "appended_bytes",
        "appended_entries",
        "applied_entries",
        "rejected_appends",
        "role_changes",
        "sync_classes",
        "sync_seconds",
        "syncs",
    )

    def __init__(self) -> None:
        self.appended_entries = 0  # taken from this node's own application and clients
        self.appended_bytes = 0
        self.rejected_appends = 0  # calls that were refused before they entered the log
        self.applied_entries = 0
        self.role_changes = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self.sync_classes = [0] * (len(SYNC_CLASSES_S) + 1)  # the last one has no upper end

    def synced(self, seconds: float) -> None:
        """One sync took so long."""
        self.syncs += 1
        self.sync_seconds += seconds
        self.sync_classes[bisect_left(SYNC_CLASSES_S, seconds)] += 1
