"""The identity of a group beyond its name: its first voters, its birth, its recoveries.

The caller sends its identity when it opens a channel. Members of different groups exchange no
messages: they would grant each other votes, and overwrite the other group's committed entries.

The *first voters* differ if members were started with different lists, the *birth* if two groups
with equal lists began separately (`dledger.store.birth_record`). A member that joins or has an
empty log may not know either yet; an unknown value matches any other. The *generation* is counted
up when a group is recovered from one member (`dledger.rescue.group_recovery`): the group may lose
entries of other members then, and write different ones in their place. So a member of an older
generation must not take part any more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dledger.core.orphans import Orphans
from dledger.errors import Fatal, MessageMalformed
from dledger.machine_kind import UNKNOWN_MACHINE, MachineKind
from dledger.store.generation import NEVER_RECOVERED, Generation, is_generation
from dledger.wire.frame import shown

_VOTERS_SUM = re.compile(r"[0-9a-f]{16}|")
_BIRTH = re.compile(r"[0-9a-f]{32}|")

# A refusal of another group begins with this. The caller logs such a refusal.
ANOTHER_GROUP = "another group: "

# A refusal of a second process with the same name begins with this.
SECOND_PROCESS = "second process: "

_SUPERSEDED = re.compile(r"superseded by generation ([0-9]{1,9})(?: of mark ([0-9a-f]{16}))?:")


class GroupIdentity(NamedTuple):
    """The identity of a group beyond its name, as one member knows it.

    Attributes:
        generation: how often it was recovered, and by which recovery last.
        voters_sum: checksum of the names of its first voters; empty if unknown.
        birth: as 32 hexadecimal digits; empty if unknown.
        machine: the kind of the member's state machine. It and the next two are sent in frames of
            their own, see `dledger.wire.channel_protocol`.
        process: a number that the member's process drew when it started; 0 if unknown.
        orphans: the committed entries that the member holds and its group lost.
    """

    generation: Generation = NEVER_RECOVERED
    voters_sum: str = ""
    birth: str = ""
    machine: MachineKind = UNKNOWN_MACHINE
    process: int = 0
    orphans: Orphans | None = None


# The identity for a member that knows only the group's name.
UNKNOWN_GROUP = GroupIdentity()


class Superseded(Fatal):
    """The group was recovered without this member, whose log belongs to an older generation."""

    group: str
    node_id: str
    own: int
    newer: int
    problem: str
    _template = "{problem}"

    def __init__(self, group: str, node_id: str, own: Generation, newer: Generation) -> None:
        self.group = group
        self.node_id = node_id
        self.own = own.number
        self.newer = newer.number
        self.problem = (
            f"group {group} was recovered without {node_id}: the group is in generation {newer}, "
            f"this folder in generation {own}: keep a copy of this folder if it may be needed, "
            "then run `dledger rejoin` on it and add the node with `dledger members`"
        )


def identity_fields(identity: GroupIdentity) -> list[object]:
    return [*identity.generation, identity.voters_sum, identity.birth]


def decode_identity(fields: list[object]) -> GroupIdentity:
    """Decode the identity in the fields of a frame. Raises MessageMalformed."""
    match fields:
        case [number, mark, str(voters), str(birth)]:
            if not is_generation(number, mark):
                raise MessageMalformed(f"{shown(number)} and {shown(mark)} are not a generation")
            if not _VOTERS_SUM.fullmatch(voters) or not _BIRTH.fullmatch(birth):
                raise MessageMalformed("first voters or a birth of the wrong form")
            generation = Generation(int(str(number)), str(mark))
            return GroupIdentity(generation, voters, birth)
        case _:
            raise MessageMalformed("a group identity with wrong fields")


def superseded_reason(group: str, newer: Generation, caller: str, own: Generation) -> str:
    """Return the reason for refusing a caller of an older generation."""
    return (
        f"superseded by generation {newer}: group {group} was recovered without {caller}, "
        f"which belongs to generation {own}"
    )


def superseding_generation(reason: str) -> Generation | None:
    """Return the newer generation that a refusal names, or None."""
    found = _SUPERSEDED.match(reason)
    return Generation(int(found[1]), found[2] or "") if found else None
