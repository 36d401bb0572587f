"""Counters of a running node, as plain numbers. Pure."""

from __future__ import annotations

from bisect import bisect_left

# A sync that takes longer is slow: this is the interval of heartbeats.
SLOW_SYNC_S = 0.1

# Upper ends of the classes of sync times: from a fast NVMe disk to a hanging one.
SYNC_CLASSES_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class Tally:
    """Counts since the node was opened.

    Attributes:
        appended_entries: put into the log for this node's own application and clients.
        appended_bytes: the bytes of their bodies.
        rejected_appends: calls that were refused before they entered the log.
        sync_s: the time of all syncs together.
        sync_classes: how many syncs took up to each of SYNC_CLASSES_S; the last class took longer.
    """

    __slots__ = (
        "appended_bytes",
        "appended_entries",
        "rejected_appends",
        "sync_classes",
        "sync_s",
    )

    def __init__(self) -> None:
        self.appended_entries = 0
        self.appended_bytes = 0
        self.rejected_appends = 0
        self.sync_s = 0.0
        self.sync_classes = [0] * (len(SYNC_CLASSES_S) + 1)

    def synced(self, took_s: float) -> None:
        self.sync_s += took_s
        self.sync_classes[bisect_left(SYNC_CLASSES_S, took_s)] += 1
