"""This process: its address, its number, its wall clock."""

import itertools
import os
import socket
import time
from typing import Final

from dledger_mq.identity import Identity
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed

_UNKNOWN_HOST: Final = "127.0.0.1"

# Tells the clients of one process apart. Two members of a group under one id would share a queue
# without knowing of each other.
_instances: Final = itertools.count(1)


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
    """This machine's address on the way to a name server; nothing is sent to find it."""
    try:
        address = parse_address(nameserver)
    except AddressMalformed:
        return _UNKNOWN_HOST  # connecting will say so
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(tuple(address))
            return str(probe.getsockname()[0])
    except OSError:
        # The name does not resolve, or there is no way to it: connecting will say so.
        return _UNKNOWN_HOST
