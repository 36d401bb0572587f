"""Finding ports of this machine that nobody uses."""

import socket
from contextlib import ExitStack


def free_addresses(count: int) -> list[str]:
    """That many addresses on loopback, all different. Somebody may take one before it is used.

    Raises:
        OSError: the machine has no free port.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    return [f"127.0.0.1:{port}" for port in ports]
