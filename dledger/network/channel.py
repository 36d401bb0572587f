"""One member's way to one other: a channel on the connection between their processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.config import Address
from dledger.core.messages import Heartbeat, HeartbeatResponse, Message
from dledger.network.connections import Connections
from dledger.wire.channel_protocol import Opening, encode_closing, encode_opening
from dledger.wire.codec import encode_message
from dledger.wire.group_identity import UNKNOWN_GROUP, GroupIdentity

# What leaves together with that of other groups, when many have something to say at once.
_SHARED = (Heartbeat, HeartbeatResponse)

ChannelChanged = Callable[[str, bool], None]
PeerRefused = Callable[[str], None]
ChannelRefused = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """How a member introduces itself, and where the others reach it."""

    group: str
    node_id: str
    address: Address
    of_group: GroupIdentity = UNKNOWN_GROUP


class Channel:
    """Sends to one other member.

    Attributes:
        peer: that member.
        address: where it listens.
        number: of this channel, on its connection.
        opening: the frame that opens it.
        connected: whether the other side takes messages now.
    """

    __slots__ = (
        "_changed",
        "_closed",
        "_connection",
        "_connections",
        "_peer_refused",
        "_refusal",
        "_refused",
        "address",
        "connected",
        "number",
        "opening",
        "peer",
    )

    def __init__(
        self,
        connections: Connections,
        identity: Identity,
        peer: str,
        address: Address,
        changed: ChannelChanged,
        peer_refused: PeerRefused,
        refused: ChannelRefused | None = None,
    ) -> None:
        self.peer = peer
        self.address = address
        self.connected = False
        self._changed = changed
        self._peer_refused = peer_refused
        self._refused = refused
        self._closed = False
        self._refusal: str | None = None
        self._connections = connections
        self._connection = connections.to(address, peer)
        self.number = self._connection.new_number()
        self.introduce(identity)

    def introduce(self, identity: Identity) -> None:
        """Open the channel, or say anew on an open one who this member is."""
        names = (identity.group, identity.node_id, self.peer, identity.of_group)
        self.opening = encode_opening(Opening(self.number, *names))
        self._connection.add(self)

    @property
    def last_problem(self) -> str | None:
        """Why there is no connection, if there is none."""
        return self._refusal or self._connection.last_problem

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Let a message leave; heartbeats and their answers together with those of other groups.

        Without a connection it is dropped: the protocol repeats what matters, and a member that
        comes back is compared anew.
        """
        if not self.connected:
            return
        if self._connections.collecting and isinstance(message, _SHARED):
            self._connection.collect(message, self.number)
        else:
            self._connection.write(encode_message(message, payload, self.number))

    def opened(self) -> None:
        """The other side takes messages now."""
        self._refusal = None
        if not self.connected:
            self.connected = True
            self._changed(self.peer, True)

    def ended(self, reason: str | None) -> None:
        """The connection broke, or (with a reason) the other side refused the channel."""
        self._refusal = reason
        if self.connected:
            self.connected = False
            self._changed(self.peer, False)
        if reason is not None and self._refused is not None:
            self._refused(self.peer, reason)

    def refused(self) -> None:
        """Nobody listens there."""
        self._peer_refused(self.peer)

    def close(self) -> None:
        """End this channel, and the connection if it was the last one on it."""
        if self._closed:
            return
        self._closed = True
        if self.connected:
            self._connection.write(encode_closing(self.number))
        self.ended(None)
        if not self._connection.remove(self):
            self._connections.end(self._connection)
