"""Whether a member's folder still holds the promises that the member made."""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """Whether the folder holds every promise that its member made. The store keeps it durably."""

    PROVEN = "proven"  # it holds all promises: the member votes and counts
    FRESH = "fresh"  # it was empty: the group is new, or the member lost its data
    LOST = "lost"  # it is known to have lost data
