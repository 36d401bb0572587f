"""What a member's folder says about the promises that were made from it."""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """Whether the folder still holds every promise that its member made. Durable: see the store."""

    PROVEN = "proven"  # it does: the member votes and counts
    FRESH = "fresh"  # it was empty: the group is new, or the member lost all it had
    LOST = "lost"  # it is known to have lost something
