"""The errors of connections. Each has one line that says what to do. An `address` is the peer's."""

from typing import Final

from remoting.wire.errors import RemotingError


class RequestTimedOut(RemotingError):
    """No reply came in time. Whether the request was carried out is not known."""

    outcome_unknown = True

    address: str
    code: int
    timeout_s: float
    _template = (
        "request {code} to {address} got no reply in {timeout_s:g} s: it may have been "
        "carried out; look before repeating it"
    )


# The reason of a connection that closes because its own task is cancelled.
ENDED_HERE: Final = "this side ended it"


class ConnectionClosed(RemotingError):
    """The connection is gone.

    Attributes:
        address: the peer, "host:port".
        reason: why it closed.
        outcome_unknown: true if the request had been handed to the connection, so that it may have
            been carried out; false if it certainly was not, and may be repeated.
        is_another_protocol: whether the peer's first bytes were no frame: a retry is useless.
    """

    address: str
    reason: str
    outcome_unknown: bool
    is_another_protocol: bool = False

    @property
    def is_own_end(self) -> bool:
        """Whether this side was cancelled, which says nothing about the peer or the network."""
        return self.reason == ENDED_HERE

    def _text(self) -> str:
        advice = (
            "it may have been carried out" if self.outcome_unknown else "it was not sent, try again"
        )
        return f"connection to {self.address} closed ({self.reason}): {advice}"


class ConnectFailed(RemotingError):
    """No connection could be made; the request was certainly not sent."""

    outcome_unknown = False

    address: str
    reason: str
    _template = "cannot connect to {address} ({reason}): check that it runs there"


class TooManyRequests(RemotingError):
    """The table of requests without a reply, or of addresses, is full; nothing was sent."""

    outcome_unknown = False

    address: str
    limit: int
    _template = "{limit} requests already wait for {address}: send more slowly"


class AddressMalformed(RemotingError):
    """An address is not "host:port"."""

    outcome_unknown = False

    address: str
    _template = "{address!r:.200} is not an address: write host:port, as 127.0.0.1:9876"


class PortInUse(RemotingError):
    """A server cannot listen because its port is taken."""

    host: str
    port: int
    _template = (
        "port {port} on {host} is in use: stop the program that listens there, or choose another "
        "port"
    )


class ListenFailed(RemotingError):
    """A server cannot listen for another reason than a taken port, given by the operating
    system.
    """

    host: str
    port: int
    reason: str

    def _text(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"cannot listen on {shown}:{self.port} ({self.reason}): give an address of this "
            "machine and a port you may use"
        )


class TooManyConnections(RemotingError):
    """A client already talks to as many addresses as it may; nothing was sent."""

    outcome_unknown = False

    address: str
    limit: int
    _template = "no connection to {address}: {limit} are open; close some, or use another client"


class PeerTooSlow(RemotingError):
    """A peer does not read what it is sent, so its connection is closed to free our memory."""

    address: str
    unsent_bytes: int
    limit_bytes: int
    _template = (
        "{address} does not read: {unsent_bytes} bytes wait, at most {limit_bytes} may; read "
        "faster or ask for less at once"
    )


class PeerDoesNotRead(RemotingError):
    """A peer has taken nothing of its waiting frames for too long, so its connection is closed."""

    address: str
    unsent_bytes: int
    stalled_s: float
    _template = (
        "{address} took nothing of {unsent_bytes} bytes for {stalled_s:.0f} s: read what was "
        "asked for"
    )


class ServerOutOfRoom(RemotingError):
    """All connections hold too much, and this one made no progress for the longest time."""

    address: str
    held_bytes: int
    limit_bytes: int
    _template = (
        "{address} holds {held_bytes} bytes without progress while all connections hold more than "
        "{limit_bytes}: send whole requests and read the answers"
    )


class TooFewDescriptors(RemotingError):
    """The process may open too few files to be a server."""

    descriptors: int
    spare_descriptors: int
    fewest_connections: int
    _template = (
        "the process may open {descriptors} files, and a server needs {spare_descriptors} besides "
        "{fewest_connections} connections: raise the limit with ulimit -n"
    )


class PeerSilent(RemotingError):
    """A peer has sent nothing since a request that it did not answer within its timeout."""

    address: str
    silent_s: float
    _template = (
        "{address} owes an answer and has sent nothing for {silent_s:.1f} s: check that it "
        "runs, and what lies between"
    )


class IdleTooLong(RemotingError):
    """Nothing was received or sent on a connection for too long."""

    address: str
    idle_s: float
    _template = "{address} was silent for {idle_s:.0f} s: send a heartbeat every 30 s"
