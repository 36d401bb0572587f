"""Whether a member's folder holds all promises, and what is known about the group besides it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Standing(Enum):
    """Whether the folder holds every promise that its member made. The store keeps it durably."""

    PROVEN = "proven"  # it holds all promises: the member votes and counts
    FRESH = "fresh"  # it was empty: the group is new, or the member lost its data
    LOST = "lost"  # it is known to have lost data


class Told(Enum):
    """What is known about the group when a member starts, besides what its folder holds."""

    NOTHING = "nothing"
    NEW = "new"  # the operator says that the group has never begun
    GROWN = "grown"  # it has, or had, members besides its first voters


class Forgotten(NamedTuple):
    """What another member remembers of this one, and what this member's folder holds.

    Attributes:
        remembered_by: the other member.
        promised: the highest term that this member is known to have been in.
        held: the last entry that it is known to have had.
        term: its term, as its folder says.
        durable: the last entry in its folder.
    """

    remembered_by: str
    promised: int
    held: int
    term: int
    durable: int
