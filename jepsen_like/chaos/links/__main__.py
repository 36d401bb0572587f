"""The process of the switch: `python -m jepsen_like.chaos.links PREFIX SEED HOST...`.

It makes a network namespace for each host, passes packets between them, and removes them when its
standard input ends: so they end with the run, however that ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys

from jepsen_like.chaos.links.namespaces import address_of, namespace_of, remove_orphans
from jepsen_like.chaos.links.switch import DONE, Switch

TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
CLONE_NEWNET = 0x40000000
DEVICE = "tun0"
# Large packets: each costs the switch some 30 microseconds.
MTU_BYTES = 16_000

_libc = ctypes.CDLL(None, use_errno=True)


def _enter(path: str) -> None:
    with open(path, "rb") as namespace:
        if _libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def open_host(prefix: str, host: str, place: int) -> int:
    """Make the namespace of a host, and return its device."""
    name = namespace_of(prefix, host)
    _ip("netns", "add", name)
    _enter(f"/run/netns/{name}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22s", DEVICE.encode(), IFF_TUN_WITHOUT_HEADER, b"")
    fcntl.ioctl(device, TUNSETIFF, request)
    _ip("addr", "add", f"{address_of(place)}/24", "dev", DEVICE)
    _ip("link", "set", DEVICE, "mtu", str(MTU_BYTES), "up")
    _ip("link", "set", "lo", "up")
    return device


def main() -> None:
    """Make the hosts, write `ready`, and switch until standard input ends."""
    prefix, seed, *hosts = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    # Stopping a container or a service ends all its processes by SIGTERM: leave nothing then.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    remove_orphans()
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        devices: dict[str, int] = {}
        for place, host in enumerate(hosts):
            devices[host] = open_host(prefix, host, place)
            if _libc.setns(home, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        addresses = {
            host: bytes(map(int, address_of(place).split("."))) for place, host in enumerate(hosts)
        }
        os.write(sys.stdout.fileno(), DONE)
        Switch(devices, addresses, int(seed)).run(sys.stdin.fileno(), sys.stdout.fileno())
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop this
        for host in hosts:
            name = namespace_of(prefix, host)
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
