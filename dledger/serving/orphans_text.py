"""The words for committed entries that a group lost. Pure."""

from __future__ import annotations

from dledger.core.orphans import Orphans


def orphans_text(member: str, orphans: Orphans) -> str:
    """What to say of a member that holds committed entries which its group lost."""
    return (
        f"{member} holds the committed entries {orphans}, which the group lost: nothing of them is "
        "overwritten; see docs/failures.md, 'A group that lost committed entries'"
    )
