"""A channel: carries one member's messages to one peer, on the connection of their processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.config import Address
from dledger.core.messages import Heartbeat, HeartbeatResponse, Message
from dledger.network.connections import Connections
from dledger.wire.channel_protocol import Opening, encode_closing, encode_opening
from dledger.wire.codec import encode_message
from dledger.wire.group_identity import UNKNOWN_GROUP, GroupIdentity

# Messages that share a frame with messages of other groups while `Connections.collecting` is set.
_SHARED = (Heartbeat, HeartbeatResponse)

ChannelChanged = Callable[[str, bool], None]
PeerRefused = Callable[[str], None]
ChannelRefused = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Identity:
    group: str
    node_id: str
    address: Address
    of_group: GroupIdentity = UNKNOWN_GROUP


class Channel:
    """Sends to one peer.

    Attributes:
        peer: the name of the peer.
        address: where the peer listens.
        number: of this channel, on its connection.
        opening: the frame that opens it.
        connected: whether the peer takes messages now.
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
        """Open the channel; on an open one, send this member's identity again."""
        names = (identity.group, identity.node_id, self.peer, identity.of_group)
        self.opening = encode_opening(Opening(self.number, *names))
        self._connection.add(self)

    @property
    def last_problem(self) -> str | None:
        """The reason why the channel is not open; None if it is open or no problem is known."""
        return self._refusal or self._connection.last_problem

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send a message; a heartbeat or its answer may share a frame with those of other groups.

        Without a connection the message is dropped: the protocol repeats what matters, and the
        leader compares its log again with that of a member that comes back.
        """
        if not self.connected:
            return
        if self._connections.collecting and isinstance(message, _SHARED):
            self._connection.collect(message, self.number)
        else:
            self._connection.write(encode_message(message, payload, self.number))

    def opened(self) -> None:
        """Note that the peer accepted the channel, and takes messages now."""
        self._refusal = None
        if not self.connected:
            self.connected = True
            self._changed(self.peer, True)

    def ended(self, reason: str | None) -> None:
        """Note that the connection broke, or (with a reason) that the peer refused the channel."""
        self._refusal = reason
        if self.connected:
            self.connected = False
            self._changed(self.peer, False)
        if reason is not None and self._refused is not None:
            self._refused(self.peer, reason)

    def refused(self) -> None:
        """Report that no process listens at the address."""
        self._peer_refused(self.peer)

    def close(self) -> None:
        """Close this channel, and its connection if it has no other channel."""
        if self._closed:
            return
        self._closed = True
        if self.connected:
            self._connection.write(encode_closing(self.number))
        self.ended(None)
        if not self._connection.remove(self):
            self._connections.end(self._connection)
