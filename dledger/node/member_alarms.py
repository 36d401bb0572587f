"""What a member tells operators that they must look at, about itself and its peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dledger.core.orphans import Orphans
from dledger.serving.orphans_text import orphans_text
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
