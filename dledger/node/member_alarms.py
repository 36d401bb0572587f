"""What a member tells operators that they must look at, about itself and its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dledger.core.admission.beginning import Hold
from dledger.core.orphans import Orphans, orphans_text
from dledger.status import MemberAlarm

ORPHANS, SECOND_PROCESS = "orphans", "second_process"


def second_process_text(member: str) -> str:
    """What to say of a member under whose name two processes run."""
    return (
        f"two processes run as {member}: the one that came second is refused; stop it, and keep "
        "its folder"
    )


def refused_as_second_text(member: str, peers: Iterable[str]) -> str:
    """What such a second process says of itself."""
    return (
        f"another process runs as {member}, so {', '.join(sorted(peers))} refuse this one: stop it"
    )


def member_alarms(
    member: str,
    orphans: Orphans | None,
    of_peers: Mapping[str, Orphans],
    twice: Iterable[str],
    refused_by: Iterable[str],
) -> list[MemberAlarm]:
    """The alarms of a member.

    Args:
        member: its name.
        orphans: the committed entries that it holds and its group lost.
        of_peers: those of its peers.
        twice: the peers under whose name two processes call.
        refused_by: the peers that refuse this member as a second process.
    """
    found = dict(of_peers)
    if orphans is not None:
        found[member] = orphans
    alarms = [
        MemberAlarm(ORPHANS, name, orphans_text(name, lost)) for name, lost in sorted(found.items())
    ]
    alarms += [MemberAlarm(SECOND_PROCESS, name, second_process_text(name)) for name in twice]
    if refusing := list(refused_by):
        text = refused_as_second_text(member, refusing)
        alarms.append(MemberAlarm(SECOND_PROCESS, member, text))
    return alarms


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
