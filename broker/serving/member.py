"""The member of the log's group that a broker runs, for features that look after its files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from broker.machine import BrokerMachine
from broker.serving.parts import Shared
from dledger import Node
from remoting.net.connection import Connection
from remoting.net.server import Server


class Member(NamedTuple):
    """A member, its machine and its surroundings.

    Attributes:
        node: the member of the log's group.
        machine: the folded log, with the consume queues.
        hour_of: the local hour of the day at a time in milliseconds since 1970.
        used_percent: how much of the disk under a directory is used.
        server: takes connections.
        connections: of all clients that are served.
    """

    node: Node
    machine: BrokerMachine
    hour_of: Callable[[int], int]
    used_percent: Callable[[Path], float]
    server: Callable[[], Server]
    connections: Callable[[], Iterable[Connection]]


MEMBER: Final[Shared[Member]] = Shared("member")
