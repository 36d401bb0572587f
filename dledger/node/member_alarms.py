"""The alarms of a member for operators, about itself and its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from dledger.core.admission.beginning import Hold
from dledger.core.orphans import Orphans, orphans_text
from dledger.status import CERTIFICATE_ENDS, MemberAlarm

ORPHANS, SECOND_PROCESS = "orphans", "second_process"
CERTIFICATE_ENDED = "certificate_ended"

# A certificate is told of for so long before it ends.
_NOTICE = timedelta(days=14)


def member_alarms(
    member: str,
    orphans: Orphans | None,
    of_peers: Mapping[str, Orphans],
    twice: Iterable[str],
    refused_by: Iterable[str],
) -> list[MemberAlarm]:
    """Return the alarms of a member.

    Args:
        member: its name.
        orphans: the committed entries that it holds and its group lost.
        of_peers: the orphans of its peers.
        twice: the peers under whose name two processes call.
        refused_by: the peers that refuse this member as a second process.
    """
    found = dict(of_peers)
    if orphans is not None:
        found[member] = orphans
    alarms = [
        MemberAlarm(ORPHANS, name, orphans_text(name, lost)) for name, lost in sorted(found.items())
    ]
    for name in twice:
        text = (
            f"two processes run as {name}: the one that came second is refused; stop it, and keep "
            "its folder"
        )
        alarms.append(MemberAlarm(SECOND_PROCESS, name, text))
    if refusing := ", ".join(sorted(refused_by)):
        text = f"another process runs as {member}, so {refusing} refuse this one: stop it"
        alarms.append(MemberAlarm(SECOND_PROCESS, member, text))
    return alarms


def certificate_alarms(member: str, ends_at: float | None, now: float) -> list[MemberAlarm]:
    """Return the alarm about the certificate of a member, if it ends soon or has ended.

    Both times are seconds since 1970.
    """
    if ends_at is None:
        return []
    left, day = timedelta(seconds=ends_at - now), f"{datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d}"
    if left > _NOTICE:
        return []
    renew = "renew it, and send SIGHUP"
    if left <= timedelta():
        text = f"the certificate of {member} has ended on {day}, and nobody believes it: {renew}"
        return [MemberAlarm(CERTIFICATE_ENDED, member, text)]
    text = f"the certificate of {member} ends in {left.days} days, on {day}: {renew}"
    return [MemberAlarm(CERTIFICATE_ENDS, member, text)]


def hold_text(group: str, node_id: str, hold: Hold) -> str:
    """Return the line about a member that waits before it begins its group."""
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
