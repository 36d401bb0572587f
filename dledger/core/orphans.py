"""Committed entries of one member that its group has lost."""

from __future__ import annotations

from typing import NamedTuple


class Orphans(NamedTuple):
    """A member knows the entries first..last to be committed, and its leader has other ones.

    The group lost them: a majority came back with older or empty folders. The member keeps them,
    and takes nothing from that leader, until an operator decides.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"


def orphans_text(member: str, orphans: Orphans) -> str:
    """Return the message about a member that holds committed entries which its group lost."""
    return (
        f"{member} holds the committed entries {orphans}, which the group lost: nothing of them is "
        "overwritten; see docs/failures.md, 'A group that lost committed entries'"
    )
