"""What tells two groups of one name apart: their first voters, their birth, their recoveries.

Every channel is opened with the caller's. Members of different groups exchange no message: they
would grant each other votes, and overwrite what the other group has committed.

*First voters* differ where members were started with different lists, the *birth* where two groups
with equal lists began separately (`dledger.store.birth_record`). Either may be unknown, to a member
that joins or holds nothing yet; what is unknown contradicts nothing. The *generation* is counted up
when a group is recovered from one member (`dledger.rescue.group_recovery`): some of what the others
held is gone then, and the entries that follow are others. So a member of before must not take part
any more, however it comes back.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dledger.errors import Fatal, MessageMalformed
from dledger.store.generation import NEVER_RECOVERED, Generation, is_generation
from dledger.wire.frame import shown

_VOTERS_SUM = re.compile(r"[0-9a-f]{16}|")
_BIRTH = re.compile(r"[0-9a-f]{32}|")

# What the refusal of another group begins with: the caller tells its log.
ANOTHER_GROUP = "another group: "

_SUPERSEDED = re.compile(r"superseded by generation ([0-9]{1,9})(?: of mark ([0-9a-f]{16}))?:")


class GroupIdentity(NamedTuple):
    """A group, beyond its name, as one member knows it.

    Attributes:
        generation: how often it was recovered, and by which recovery last.
        voters_sum: of the names of its first voters; empty if unknown.
        birth: as 32 hexadecimal digits; empty if unknown.
    """

    generation: Generation = NEVER_RECOVERED
    voters_sum: str = ""
    birth: str = ""


# Of a member that knows nothing but the name.
UNKNOWN_GROUP = GroupIdentity()


class Superseded(Fatal):
    """The group was recovered without this member: what it holds is of a life that is over."""

    def __init__(self, group: str, node_id: str, own: Generation, newer: Generation) -> None:
        self.group = group
        self.node_id = node_id
        self.own = own.number
        self.newer = newer.number
        super().__init__(
            f"group {group} was recovered without {node_id}, which holds generation {own} of it; "
            f"the group is in generation {newer}: keep a copy of this folder if something in it "
            "may be missed, then run `dledger rejoin` on it and add the node with `dledger members`"
        )


def identity_fields(identity: GroupIdentity) -> list[object]:
    """The fields of an identity, for a frame."""
    return [*identity.generation, identity.voters_sum, identity.birth]


def decode_identity(fields: list[object]) -> GroupIdentity:
    """The identity in the fields of a frame. Raises MessageMalformed."""
    match fields:
        case [number, mark, str(voters), str(birth)]:
            if not is_generation(number, mark):
                raise MessageMalformed(f"{shown(number)} and {shown(mark)} are no generation")
            if not _VOTERS_SUM.fullmatch(voters) or not _BIRTH.fullmatch(birth):
                raise MessageMalformed("first voters or a birth of another shape")
            generation = Generation(int(str(number)), str(mark))
            return GroupIdentity(generation, voters, birth)
        case _:
            raise MessageMalformed("the identity of a group of another shape")


def superseded_reason(group: str, newer: Generation, caller: str, own: Generation) -> str:
    """Why a caller of an older generation is refused."""
    return (
        f"superseded by generation {newer}: group {group} was recovered without {caller}, "
        f"which belongs to generation {own}"
    )


def superseding_generation(reason: str) -> Generation | None:
    """The newer generation that a refusal tells of, if it does."""
    found = _SUPERSEDED.match(reason)
    return Generation(int(found[1]), found[2] or "") if found else None
