"""Why a member's folder is not believed."""

from __future__ import annotations

from typing import NamedTuple


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
