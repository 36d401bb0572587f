"""The members of a group: voters, learners, and the two halves of a joint configuration.

A configuration is a value. A change makes it from another one (`configuration_change`). It travels
in entries of magic 3 and in snapshots (`configuration_codec`). It comes into force on a member once
its entry is committed there (`membership`), as in etcd, and not with the append, as in the paper.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.quorum import Quorum, quorum_of

# Beyond nine voters, larger quorums cost more than they add in safety.
MAX_VOTERS = 9

# The leader sends every learner the whole traffic of the log, as it does for a voter.
MAX_LEARNERS = 9

MAX_ID_CHARACTERS = 64
# The record of term and vote has this much room for the name of the vote.
MAX_ID_BYTES = 127

# The longest name in the domain name system, a colon and a port.
MAX_ADDRESS_CHARACTERS = 253 + 6

_HIGHEST_PORT = 65_535

# How a resolver takes 0.0.0.0 as well: its parts may be fewer, and in any notation.
_ZEROS = re.compile(r"(0x)?0+(\.(0x)?0+){0,3}", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The members of a group. Every field is checked when the object is made.

    `voters` decide; while the configuration is joint, a majority of `outgoing`, the voters of the
    previous configuration, must agree to every decision as well (thesis 4.3). `learners` get the
    log and decide nothing. An outgoing voter that will become a learner waits in `learners_next`,
    because no member is voter and learner at once. With `auto_leave` the leader ends the joint
    phase by itself. `addresses` has host:port of exactly the members.

    A configuration without voters is empty. A member that has yet to join its group starts with it,
    and cannot stand for election by it.

    Raises ConfigurationInvalid.
    """

    voters: frozenset[str] = frozenset()
    outgoing: frozenset[str] = frozenset()
    learners: frozenset[str] = frozenset()
    learners_next: frozenset[str] = frozenset()
    auto_leave: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        addresses = MappingProxyType(dict(sorted(self.addresses.items())))
        object.__setattr__(self, "addresses", addresses)
        self._check_halves()
        self._check_size()
        self._check_names()

    @property
    def is_joint(self) -> bool:
        """Whether a change is under way, so that two majorities decide."""
        return bool(self.outgoing)

    @property
    def voting_members(self) -> frozenset[str]:
        """The members that may vote and stand for election: the voters of both halves."""
        return self.voters | self.outgoing

    @property
    def members(self) -> frozenset[str]:
        """All members. The leader sends the log to each of them."""
        return self.voters | self.outgoing | self.learners

    @property
    def quorum(self) -> Quorum:
        """The quorum that decides. Each call builds it: keep it as long as the configuration."""
        return quorum_of(self.voters, self.outgoing)

    def __str__(self) -> str:
        parts = [f"voters={self.quorum}"]
        for name in ("learners", "learners_next"):
            if members := getattr(self, name):
                parts.append(f"{name}=({' '.join(sorted(members))})")
        return " ".join([*parts, "auto_leave"] if self.auto_leave else parts)

    # --- the checks ---------------------------------------------------------------------------

    def _check_halves(self) -> None:
        _refuse_any(self.learners & self.voting_members, "both learner and voter")
        _refuse_any(self.learners_next - self.outgoing, "in learners_next, and not outgoing")
        _refuse_any(self.learners_next & self.voters, "in learners_next, and to stay a voter")
        if self.auto_leave and not self.is_joint:
            raise ConfigurationInvalid("auto_leave without outgoing voters: there is no change")
        if not self.voters and self.members:
            raise ConfigurationInvalid(f"no voters among {sorted(self.members)}")

    def _check_size(self) -> None:
        # Check the learners after the joint phase too, so that it can always end.
        learners = len(self.learners | self.learners_next)
        if max(len(self.voters), len(self.outgoing)) > MAX_VOTERS:
            raise ConfigurationInvalid(f"more than {MAX_VOTERS} voters")
        if learners > MAX_LEARNERS:
            raise ConfigurationInvalid(f"{learners} learners; at most {MAX_LEARNERS}")

    def _check_names(self) -> None:
        if self.addresses.keys() != self.members:
            odd = sorted(self.addresses.keys() ^ self.members)
            raise ConfigurationInvalid(f"addresses and members differ in {odd}")
        for member, address in self.addresses.items():
            check_member_id(member)
            check_address(member, address)
        if len(set(self.addresses.values())) != len(self.addresses):
            raise ConfigurationInvalid("two members have the same address")


def _refuse_any(members: frozenset[str], problem: str) -> None:
    if members:
        raise ConfigurationInvalid(f"{sorted(members)}: {problem}")


def check_member_id(member: str) -> None:
    """Raise ConfigurationInvalid unless `member` can be a folder's name and stand in a record."""
    if (
        not 0 < len(member) <= MAX_ID_CHARACTERS
        or not all(character.isalnum() or character in "_-." for character in member)
        or len(member.encode()) > MAX_ID_BYTES
    ):
        raise ConfigurationInvalid(
            f"{member[:MAX_ID_CHARACTERS]!r} is no member id: 1 to {MAX_ID_CHARACTERS} letters, "
            f"digits, '_', '-' or '.', and at most {MAX_ID_BYTES} bytes"
        )


def check_address(member: str, address: str) -> None:
    """Raise ConfigurationInvalid unless `address` is host:port."""
    if not is_address(address):
        raise ConfigurationInvalid(
            f"{address[:MAX_ADDRESS_CHARACTERS]!r} is no address for {member}: "
            "host:port, as in 10.0.0.1:20911"
        )


def is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return (
        bool(host)
        and len(text) <= MAX_ADDRESS_CHARACTERS
        and text.isascii()
        and text.isprintable()
        and " " not in text
        and port.isdecimal()
        and not port.startswith("0")
        and 0 < int(port[:6]) <= _HIGHEST_PORT
    )


def _stands_for_all(host: str) -> bool:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _ZEROS.fullmatch(host) is not None
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def unreachable(host: str) -> str | None:
    """Return why others cannot connect to `host`, if it stands for all addresses of a machine.

    Only new addresses of members are checked: the logs of earlier versions may hold such a host.
    """
    if not _stands_for_all(host):
        return None
    return (
        f"other members and clients cannot connect to {host}: name the address that they use, and "
        "give the member this one as where to listen (`listen`, --listen)"
    )
