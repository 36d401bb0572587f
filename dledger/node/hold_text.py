"""Says why a member does not begin its group, and what to do."""

from __future__ import annotations

from dledger.core.admission.beginning import Hold


def hold_text(group: str, node_id: str, hold: Hold) -> str:
    """One line about a member that waits."""
    begins = f"{node_id} does not begin group {group}"
    if hold.silent:
        names = ", ".join(hold.silent)
        return (
            f"{begins}: its folder is empty, and {names} did not answer, and may hold its data. "
            f"Start {names}. Only if the group never began, start a quorum with --new"
        )
    grown = "the group has members besides its first voters"
    why = grown if hold.grown else "its folder lost its log"
    return (
        f"{begins}: {why}. It waits until a member of the group calls it. If no member with the "
        "group's data is left, restore a backup. Only to give those data up, "
        "empty the folder and start it with --new: members that come back are then another group"
    )
