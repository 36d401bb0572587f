"""This process: its address, its number, its wall clock."""

import os
import secrets
import socket
import time
from typing import Final

from dledger_mq.connection.identity import Identity
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed

_UNKNOWN_HOST: Final = "127.0.0.1"

# Two members of a group under one id would share a queue without knowing of each other.
_INSTANCE_BITS: Final = 64


def new_identity(nameserver: str, client_id: str | None = None) -> Identity:
    """An identity that no other client has.

    Args:
        nameserver: "host:port"; the address of this machine on the way there is its host.
        client_id: the id for brokers, or None.
    """
    host, instance = _local_host(nameserver), secrets.randbits(_INSTANCE_BITS)
    return Identity(host, os.getpid(), instance, client_id)


def now_ms() -> int:
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
