"""The member of the log's group that a broker runs, for features that handle its files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from broker.machine import BrokerMachine
from broker.serving.parts import Shared
from dledger import Node
from remoting.net.connection import Connection
from remoting.net.server import Server
from remoting.net.tls import MemberTls


class Member(NamedTuple):
    """A member, its state machine and its surroundings.

    Attributes:
        hour_of: returns the local hour of a time in milliseconds since 1970.
        used_percent: returns how full the disk of a directory is.
        connections: of all clients.
        tls: how clients are passed on to the leader; None for plain connections.
    """

    node: Node
    machine: BrokerMachine
    hour_of: Callable[[int], int]
    used_percent: Callable[[Path], float]
    server: Callable[[], Server]
    connections: Callable[[], Iterable[Connection]]
    tls: MemberTls | None = None


MEMBER: Final[Shared[Member]] = Shared("member")
