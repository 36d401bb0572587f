"""Keeps links to exactly the members that the configuration in force names."""

from __future__ import annotations

from dledger.config import Address, parse_address
from dledger.core.replica import Replica
from dledger.network.links import Links


class GroupLinks:
    """Makes the links follow the configuration. Call `follow` after every turn.

    A removed member keeps its link as long as the leader still sends to it.
    """

    def __init__(self, replica: Replica, links: Links) -> None:
        self._replica = replica
        self._links = links
        self._followed: tuple[int, int] | None = None

    def follow(self) -> None:
        """Open and close links if the configuration or the leader's peers changed."""
        membership, peers = self._replica.state.membership, self._replica.dispatchers
        now = (membership.index, len(peers))
        if now == self._followed:
            return
        self._followed = now
        addresses: dict[str, Address] = {
            peer: link.address for peer, link in self._links.members.items() if peer in peers
        }
        for member, address in membership.configuration.addresses.items():
            addresses[member] = parse_address(f"the address of {member}", address)
        self._links.set_members(addresses)
