"""How a group began, as recorded in a member's folder: the first voters, and the birth.

The *first voters* are the list that the member was first started with. They decide until the log
holds a change of the group, so two members with different lists belong to different groups even if
the name is the same. Only their names count; an address may change.

The *birth* is drawn by the first leader and is part of entry 0 of the log. It distinguishes two
groups that have the same name and the same first voters but began separately. A member knows it
once entry 0 is known to be committed, or once it has installed a snapshot that replaces that entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import Configuration
from dledger.store.noop_body import BIRTH_BYTES
from dledger.store.small_file import checked_line, with_sum

VERSION = 1

_SUM_CHARACTERS = 16


class BirthRecord(NamedTuple):
    """The record of a member's folder.

    Attributes:
        group: name of the group.
        first_voters: the voters that the group began with. The empty configuration for a member
            that joined the group. None if it is not known: in a folder of an earlier version whose
            log holds a change.
        birth: 16 bytes; empty while it is not known.
    """

    group: str = ""
    first_voters: Configuration | None = None
    birth: bytes = b""

    @property
    def voters_sum(self) -> str:
        """The checksum by which members compare their first voters; empty if none are known."""
        began_with = self.first_voters
        return voters_sum(began_with.voters) if began_with and began_with.voters else ""


# For a folder whose record was not read.
NOTHING_KNOWN = BirthRecord()


def voters_sum(names: Iterable[str]) -> str:
    """Return 16 characters for a set of names: equal for equal sets, in any order."""
    return sha256("\0".join(sorted(names)).encode()).hexdigest()[:_SUM_CHARACTERS]


def shown_names(names: Iterable[str]) -> str:
    """Format names for a message."""
    return ", ".join(sorted(names)) or "no member"


def encode_birth(record: BirthRecord) -> bytes:
    """Encode the record as a line of JSON and a line with its CRC-32."""
    voters = record.first_voters
    fields = {
        "version": VERSION,
        "group": record.group,
        "first_voters": None if voters is None else dict(voters.addresses),
        "birth": record.birth.hex(),
    }
    return with_sum(json.dumps(fields).encode())


def decode_birth(content: bytes) -> BirthRecord | None:
    """Decode what `encode_birth` wrote; None for anything else."""
    line = checked_line(content)
    if line is None:
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
