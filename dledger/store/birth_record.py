"""How a group began, as a member's folder says it: the first voters, and the birth.

*First voters* are the list that the member was first started with. They decide until the log says
who does, so two members with different lists are of different groups, whatever the name. Their
names count; an address may change.

The *birth* is drawn by the first leader and stands in entry 0 of the log. So it tells two groups
apart that have the same name and the same first voters, but began separately. A member knows it
once it knows entry 0 to be committed, or has it from a leader whose snapshot stands for that entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import Configuration
from dledger.store.noop_body import BIRTH_BYTES

VERSION = 1

_SUM_CHARACTERS = 16


class BirthRecord(NamedTuple):
    """What a folder says.

    Attributes:
        group: whose folder it is.
        first_voters: what the group began with. The empty configuration for a member that joined
            the group. None in a folder of an earlier version whose log holds a change: which
            list was the first is not known there.
        birth: 16 bytes; empty while it is not known.
    """

    group: str = ""
    first_voters: Configuration | None = None
    birth: bytes = b""

    @property
    def voters_sum(self) -> str:
        """What members compare of their first voters; empty where none are known."""
        began_with = self.first_voters
        return voters_sum(began_with.voters) if began_with and began_with.voters else ""


# Of a folder that was not asked.
NOTHING_KNOWN = BirthRecord()


def voters_sum(names: Iterable[str]) -> str:
    """16 characters for a set of names: equal for equal sets, in any order."""
    return sha256("\0".join(sorted(names)).encode()).hexdigest()[:_SUM_CHARACTERS]


def shown_names(names: Iterable[str]) -> str:
    """Names, for people."""
    return ", ".join(sorted(names)) or "nobody"


def encode_birth(record: BirthRecord) -> bytes:
    """A line of JSON, and a line with its CRC-32."""
    voters = record.first_voters
    fields = {
        "version": VERSION,
        "group": record.group,
        "first_voters": None if voters is None else dict(voters.addresses),
        "birth": record.birth.hex(),
    }
    line = json.dumps(fields).encode() + b"\n"
    return line + b"%08x\n" % crc32(line)


def decode_birth(content: bytes) -> BirthRecord | None:
    """What `encode_birth` wrote; None for anything else."""
    line, _, last = content.partition(b"\n")
    if last != b"%08x\n" % crc32(line + b"\n"):
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match fields:
        case {"version": 1, "group": str(group), "first_voters": voters, "birth": str(birth)}:
            try:
                return BirthRecord(group, _configuration(voters), _birth(birth))
            except ValueError:
                return None
        case _:
            return None


def _birth(text: str) -> bytes:
    birth = bytes.fromhex(text)
    if len(birth) not in (0, BIRTH_BYTES):
        raise ValueError(text)
    return birth


def _configuration(voters: object) -> Configuration | None:
    if voters is None:
        return None
    if not isinstance(voters, dict) or not all(isinstance(text, str) for text in voters.values()):
        raise ValueError(voters)
    try:
        return Configuration(voters=frozenset(voters), addresses=voters)
    except ConfigurationInvalid as error:
        raise ValueError(voters) from error
