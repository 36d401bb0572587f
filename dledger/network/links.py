"""One member's links to its peers.

A member sends on the connections that it dialled, and receives on those that its peers dialled. So
the sender notices a broken connection, and the two directions fail independently.

The peers change while the node runs. A joining node also gets messages of members that it does not
know yet: it answers at the address that they gave when they connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import trio

from dledger.config import Address, parse_address
from dledger.core.replica import Replica
from dledger.network.channel import Channel, ChannelChanged, ChannelRefused, Identity, PeerRefused
from dledger.network.connections import Connections

# Limit on links to strangers (peers that are not members, or not yet), and on strangers as callers.
# A change can replace nine voters and nine learners at once; no other process has reason to call.
MAX_STRANGERS = 18

# A link to a stranger is closed after this time without a message. A member that has just joined
# learns the new configuration well within it.
STRANGER_IDLE_S = 10.0

# Addresses kept of peers that introduced themselves; the oldest are dropped first.
MAX_KNOWN_ADDRESSES = 64


class Links:
    """A channel to every peer, and to strangers that this member has to answer.

    Args:
        identity: of this member.
        connections: of this process.
        changed: called with the peer when a link opens (True) or breaks (False).
        stranger_idle_s: a link to a stranger is closed this long after the last message.
        peer_refused: called with the peer when no process listens at its address.
        refused: called with the peer and its reason when it refuses the channel.
    """

    def __init__(
        self,
        identity: Identity,
        connections: Connections,
        changed: ChannelChanged,
        stranger_idle_s: float = STRANGER_IDLE_S,
        peer_refused: PeerRefused = lambda peer: None,
        refused: ChannelRefused | None = None,
    ) -> None:
        self.dropped = 0  # messages to peers without a link
        self._identity = identity
        self._connections = connections
        self._changed = changed
        self._peer_refused = peer_refused
        self._refused = refused
        self._stranger_idle_s = stranger_idle_s
        self._members: dict[str, Channel] = {}
        self._strangers: dict[str, Channel] = {}
        self._used_at: dict[str, float] = {}  # each stranger's link, when it last had a message
        self._known: dict[str, Address] = {}  # where callers listen, the newest last

    @property
    def members(self) -> Mapping[str, Channel]:
        return self._members

    @property
    def strangers(self) -> Mapping[str, Channel]:
        """The links to peers that are not members but are owed an answer."""
        return self._strangers

    def set_members(self, addresses: Mapping[str, Address]) -> None:
        """Link to exactly these members; the node itself may be among them.

        Opens a link to each new member, closes the links to removed ones, and replaces the link to
        a member whose address changed.
        """
        for peer, link in list(self._members.items()):
            if addresses.get(peer) != link.address:
                self._members.pop(peer).close()
        for peer, address in addresses.items():
            if peer == self._identity.node_id or peer in self._members:
                continue
            known = self._forget_stranger(peer)
            if known is not None and known.address != address:
                known.close()
                known = None
            self._members[peer] = known or self._open(peer, address)

    def say_anew(self, identity: Identity) -> None:
        """Send this member's identity again on every link: it knows more of its group now."""
        self._identity = identity
        for link in (*self._members.values(), *self._strangers.values()):
            link.introduce(identity)

    def introduce_as(self, identity: Identity) -> None:
        """Close and reopen every link, under another identity of the same member."""
        self._identity = identity
        for peer in list(self._strangers):
            if (stranger := self._forget_stranger(peer)) is not None:
                stranger.close()
        for peer, link in list(self._members.items()):
            link.close()
            self._members[peer] = self._open(peer, link.address)

    def close(self) -> None:
        for link in (*self._members.values(), *self._strangers.values()):
            link.close()
        self._members.clear()
        self._strangers.clear()
        self._known.clear()

    def heard_of(self, peer: str, address: Address) -> None:
        """Remember the address of a peer that introduced itself, so that it can be answered."""
        self._known.pop(peer, None)
        self._known[peer] = address
        if len(self._known) > MAX_KNOWN_ADDRESSES:
            del self._known[next(iter(self._known))]

    def link_to(self, peer: str) -> Channel | None:
        """Return the connected link to `peer`, member or not; None if the message has to be
        dropped.

        Dropped messages to strangers are counted. The first message to a stranger whose address is
        known is dropped too, but opens a link for the next ones.
        """
        link = self._members.get(peer)
        if link is None:
            link = self._link_to_stranger(peer)
        return link if link is not None and link.connected else None

    def _open(self, peer: str, address: Address) -> Channel:
        return Channel(
            self._connections,
            self._identity,
            peer,
            address,
            self._changed,
            self._peer_refused,
            self._refused,
        )

    def _link_to_stranger(self, peer: str) -> Channel | None:
        link = self._strangers.get(peer)
        if link is not None:
            self._used_at[peer] = trio.current_time()
            return link
        self.dropped += 1
        address = self._known.get(peer)
        if address is None or len(self._strangers) >= MAX_STRANGERS:
            return None
        self._used_at[peer] = trio.current_time()
        link = self._strangers[peer] = self._open(peer, address)
        self._connections.start_soon(partial(self._end_when_idle, link))
        return link

    async def _end_when_idle(self, link: Channel) -> None:
        while self._strangers.get(link.peer) is link:
            idle_at = self._used_at[link.peer] + self._stranger_idle_s
            if trio.current_time() >= idle_at:
                self._forget_stranger(link.peer)
                link.close()
                return
            await trio.sleep_until(idle_at)

    def _forget_stranger(self, peer: str) -> Channel | None:
        self._used_at.pop(peer, None)
        return self._strangers.pop(peer, None)


class GroupLinks:
    """Makes the links follow the configuration. Call `follow` when it has changed.

    A removed member keeps its link as long as the leader still sends to it.
    """

    def __init__(self, replica: Replica, links: Links) -> None:
        self._replica = replica
        self._links = links
        self._followed: tuple[int, int] | None = None

    def follow(self) -> None:
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
