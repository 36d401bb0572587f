"""This process: its address, its identity, its wall clock."""

import os
import secrets
import socket
import time
from typing import Final

from dledger_mq.connection.identity import Identity
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed

_UNKNOWN_HOST: Final = "127.0.0.1"

# Two members of a group with one id would read the same queues without knowing of each other.
_INSTANCE_BITS: Final = 64


def new_identity(nameserver: str, client_id: str | None = None) -> Identity:
    """Return a new identity; its host is this machine's address toward the name server."""
    host, instance = _local_host(nameserver), secrets.randbits(_INSTANCE_BITS)
    return Identity(host, os.getpid(), instance, client_id)


def now_ms() -> int:
    """Return the time of the wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _local_host(nameserver: str) -> str:
    """Return this machine's address on the way to a name server, without sending anything."""
    try:
        address = parse_address(nameserver)
    except AddressMalformed:
        return _UNKNOWN_HOST  # connecting reports the error
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(tuple(address))
            return str(probe.getsockname()[0])
    except OSError:
        # The name does not resolve, or there is no way to it. Connecting reports the error.
        return _UNKNOWN_HOST
