"""Ports of this machine that a group's members can keep: `dledger group`, `dledger-mq up`."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import chain

# Below the ports that systems give to outgoing connections by themselves (Linux from 32768, macOS
# and IANA from 49152). A member that is killed must find its port free when it comes back, and one
# of those may be the near end of another connection by then.
FIRST_PORT = 20_000
END_PORT = 32_000


class NoFreePort(OSError):
    """Every port that may be given to a member is in use."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"this machine does not have {count} free ports between {FIRST_PORT} and {END_PORT}: "
            "stop what listens there, or name the addresses yourself"
        )


def _endless_walk() -> Iterator[int]:
    """Every port again and again, from a place of this process's own."""
    begin = random.SystemRandom().randrange(FIRST_PORT, END_PORT)
    while True:
        yield from chain(range(begin, END_PORT), range(FIRST_PORT, begin))


# One walk for the whole process: a port that was given is not given again soon, though nobody
# listens on it yet.
_walk = _endless_walk()


@cache
def _claims() -> int | None:
    """A file of this user's whose byte N is locked by the process that was given port N.

    None when there can be none: then only the ports that are listened on count as taken. It stays
    open for the life of the process, because closing it would give up every lock.
    """
    path = f"{tempfile.gettempdir()}/dledger-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _is_claimed(port: int) -> bool:
    """Whether another process was given the port and still runs; else it is this process's now."""
    claims = _claims()
    if claims is None:
        return False
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return True
    return False


def free_ports(count: int) -> list[int]:
    """That many ports of loopback, all different, on which no process listens now.

    None of them is given to another process of this user before this one has ended, though a
    while may pass until a member listens on them.

    Raises:
        NoFreePort: the machine has not so many.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(FIRST_PORT, END_PORT):
            if len(ports) == count:
                return ports
            port = next(_walk)
            if _is_claimed(port):
                continue
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    raise NoFreePort(count)


def free_addresses(count: int) -> list[str]:
    """As `free_ports`, each as `127.0.0.1:port`. Raises NoFreePort."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]
