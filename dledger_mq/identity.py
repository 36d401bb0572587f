"""Who this client is, as brokers and operators see it, and what time its clock shows."""

import itertools
import os
import socket
import time
from dataclasses import dataclass
from typing import Final

# Tells the clients of one process apart. Two members of a group under one id would share a queue
# without knowing of each other.
_instances: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's name.

    Attributes:
        host: the numeric address of this machine toward its name servers.
        process_id: this process.
        instance: a number of the client in its process.
    """

    host: str
    process_id: int
    instance: int

    @property
    def client_id(self) -> str:
        """The id by which brokers know the client: "host@process#instance"."""
        return f"{self.host}@{self.process_id}#{self.instance}"


def new_identity(nameserver: str) -> Identity:
    """An identity that no other client of this process has.

    Args:
        nameserver: "host:port"; the address of this machine on the way there is its host.
    """
    return Identity(_local_host(nameserver), os.getpid(), next(_instances))


def now_milliseconds() -> int:
    """The wall clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _local_host(nameserver: str) -> str:
    """This machine's IPv4 address on the way to a name server; nothing is sent to find it."""
    host, _, port = nameserver.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, int(port)))
        except (OSError, ValueError):
            # The name does not resolve, or there is no way to it: connecting will say so.
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
