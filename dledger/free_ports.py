"""Finds free ports of this machine for the members of a group: `dledger group`, `dledger-mq up`."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import chain

from dledger.declared_error import DeclaredError

# Below the ports that systems choose for outgoing connections (Linux from 32768, macOS and IANA
# from 49152). A killed member must find its port free when it restarts, and an outgoing connection
# may have taken one of those by then.
FIRST_PORT = 20_000
END_PORT = 32_000


class NoFreePort(DeclaredError, OSError):
    """Every port that may be given to a member is in use."""

    count: int

    def _text(self) -> str:
        return (
            f"this machine does not have {self.count} free ports between {FIRST_PORT} and "
            f"{END_PORT}: stop what listens there, or name the addresses yourself"
        )


def _endless_walk() -> Iterator[int]:
    """Yield every port again and again, from a start that differs between processes."""
    begin = random.SystemRandom().randrange(FIRST_PORT, END_PORT)
    while True:
        yield from chain(range(begin, END_PORT), range(FIRST_PORT, begin))


# One walk for the whole process: it does not return a port again soon, even if no process listens
# on it yet.
_walk = _endless_walk()

# The last ports given out: maybe no process listens there yet, and our own claims do not show.
_given: deque[int] = deque(maxlen=1000)


@cache
def _claims() -> int | None:
    """Open this user's file of claims: byte N is locked by the process that claims port N.

    None if it cannot be opened: then only ports with a listener count as taken. It stays open for
    the life of the process, because closing it would release every lock.
    """
    path = f"{tempfile.gettempdir()}/dledger-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _is_claimed(port: int) -> bool:
    """Claim the port for this process; return True if another running process has claimed it."""
    claims = _claims()
    if claims is None:
        return False
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return True
    return False


def free_ports(count: int, beside: int = 0) -> list[int]:
    """Return `count` different ports of loopback on which no process listens now.

    No other process of this user gets them before this one has ended, even if no member listens on
    them for a while.

    Args:
        count: how many.
        beside: if not 0, the port at this distance from each of them is free as well, and is given
            to no caller.

    Raises:
        NoFreePort: the machine has fewer free ports.
    """
    ports: list[int] = []
    for _ in range(FIRST_PORT, END_PORT):
        if len(ports) == count:
            return ports
        port = next(_walk)
        if _is_taken(port):
            continue
        if beside and (port + beside in _given or _is_taken(port + beside)):
            continue
        ports.append(port)
        _given.append(port)
    raise NoFreePort(count)


def takes_port(port: int) -> bool:
    """Claim one port of loopback like `free_ports`; return False if it is in use."""
    return not _is_taken(port)


def _is_taken(port: int) -> bool:
    """Claim the port for this process; return True if it is in use."""
    if _is_claimed(port):
        return True
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def free_addresses(count: int, beside: int = 0) -> list[str]:
    """Return `free_ports` as texts `127.0.0.1:port`. Raises NoFreePort."""
    return [f"127.0.0.1:{port}" for port in free_ports(count, beside)]
