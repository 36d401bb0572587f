"""What a member is told about its group from outside of its folder."""

from __future__ import annotations

from enum import Enum


class Told(Enum):
    """What is known about the group when a member starts, besides what its folder holds."""

    NOTHING = "nothing"
    NEW = "new"  # the operator says that the group has never begun
    GROWN = "grown"  # it has, or had, members besides its first voters
