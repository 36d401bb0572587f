"""The members of a group whose addresses a client knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dledger.config import Address, parse_address
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import ConfigInvalid

Peers = Mapping[str, str] | Sequence[str] | str

# The most members learned from one answer: more than a group can have.
MAX_KNOWN = 64


class KnownMember(NamedTuple):
    """A member to ask. Without a name it is any member that listens at the address."""

    node_id: str
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id} at {self.address}" if self.node_id else str(self.address)


class KnownMembers:
    """Begins with the addresses that the caller gives; learns the others from the members.

    So all members given at first may leave the group while a client lives.

    Args:
        group: the name of the group.
        peers: `{"n0": "host:port", ...}`; or `"n0=host:port,..."`; or addresses without names, as
            `"host:port,..."` or a sequence of them. Raises ConfigInvalid.
    """

    def __init__(self, group: str, peers: Peers) -> None:
        self.group = group
        self._first = tuple(_first(peers))
        if not self._first:
            raise ConfigInvalid("peers", "name at least one member's address")
        self._members = self._current = self._first
        # The configuration of the addresses. A group that never changed has BEFORE_FIRST_INDEX.
        self._configuration = BEFORE_FIRST_INDEX - 1

    @property
    def all(self) -> Sequence[KnownMember]:
        """All members to ask. The first ones come last: they may have left the group."""
        return self._members

    @property
    def current(self) -> Sequence[KnownMember]:
        """The members of the newest learned configuration, or the given ones before that."""
        return self._current

    @property
    def learned(self) -> bool:
        return self._configuration >= BEFORE_FIRST_INDEX

    def find(self, node_id: str) -> KnownMember | None:
        return next((known for known in self._members if known.node_id == node_id), None)

    def learn(self, index: int, addresses: Mapping[str, str]) -> None:
        """Take over the members of the configuration at `index`, unless an address is invalid."""
        if index <= self._configuration or not 0 < len(addresses) <= MAX_KNOWN:
            return
        try:
            members = [
                KnownMember(node_id, parse_address(f"peers.{node_id}", address))
                for node_id, address in addresses.items()
            ]
        except ConfigInvalid:
            return  # ignore the answer; the known members stay
        self._configuration, self._current = index, tuple(members)
        names = {known.node_id for known in members}
        places = {known.address for known in members}
        others = [
            known
            for known in self._first
            if known.address not in places and (not known.node_id or known.node_id not in names)
        ]
        self._members = (*members, *others)


def _first(peers: Peers) -> list[KnownMember]:
    if isinstance(peers, Mapping):
        named = list(peers.items())
    else:
        texts = peers.split(",") if isinstance(peers, str) else list(peers)
        parts = [text.strip().rpartition("=") for text in texts if text.strip()]
        named = [(node_id, address) for node_id, _, address in parts]
    return [
        KnownMember(node_id, parse_address(f"peers.{node_id}" if node_id else "peers", address))
        for node_id, address in named
    ]
