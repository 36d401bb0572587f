"""The TCP connections of this process, whoever made them, and the limits that they have."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dledger.sockets import SilenceLimits


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)


def limits_of_open_connections() -> Counter[SilenceLimits | None]:
    """How many connections have which limits; None for one that is not probed at all."""
    found: Counter[SilenceLimits | None] = Counter()
    for descriptor in _descriptors():
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            try:
                one.getpeername()
            except OSError:
                continue  # it listens, or has ended
            limits = SilenceLimits(
                *(
                    one.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (
                        socket.TCP_USER_TIMEOUT,
                        socket.TCP_KEEPIDLE,
                        socket.TCP_KEEPINTVL,
                    )
                )
            )
            probed = one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            found[limits if probed else None] += 1
    return found


@contextmanager
def descriptors_limited_to(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
