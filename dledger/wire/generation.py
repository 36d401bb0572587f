"""Which life of a group a member belongs to: its generation.

A group whose quorum is lost for good can be begun again from one member that is left (see
`dledger.rescue.group_recovery`). Some of what the others held is gone then, and the entries that
follow are others. So a member of before must not take part any more, however it comes back: it
would vote, and overwrite what was committed since. Each such recovery counts the generation up.

On the wire the generation is part of the name that opens a channel: `orders` for a group that was
never recovered, `orders#1` after the first time. A program that knows nothing of generations
takes the second for another group, and refuses it.
"""

from __future__ import annotations

import re

from dledger.errors import Fatal

# No name of a group may have it.
_MARK = "#"

_SUPERSEDED = re.compile(r"superseded by generation ([0-9]{1,9}):")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class Superseded(Fatal):
    """The group was recovered without this member: what it holds is of a life that is over."""

    def __init__(self, group: str, node_id: str, own: int, newer: int) -> None:
        self.group = group
        self.node_id = node_id
        self.own = own
        self.newer = newer
        super().__init__(
            f"group {group} was recovered without {node_id}, which holds generation {own} of it; "
            f"the group is in generation {newer}: keep a copy of this folder if something in it "
            "may be missed, then run `dledger rejoin` on it and add the node with `dledger members`"
        )


def channel_name(group: str, generation: int) -> str:
    """What a channel is opened to."""
    return f"{group}{_MARK}{generation}" if generation else group


def split_channel_name(name: str) -> tuple[str, int]:
    """Group and generation of a name that opens a channel."""
    group, mark, number = name.rpartition(_MARK)
    if not mark or not _NUMBER.fullmatch(number):
        return name, 0
    return group, int(number)


def superseded_reason(group: str, newer: int, caller: str, own: int) -> str:
    """Why a caller of an older generation is refused."""
    return (
        f"superseded by generation {newer}: group {group} was recovered without {caller}, "
        f"which belongs to generation {own}"
    )


def superseding_generation(reason: str) -> int | None:
    """The newer generation that a refusal tells of, if it does."""
    found = _SUPERSEDED.match(reason)
    return int(found[1]) if found else None
