"""Names and addresses of the network namespaces of runs, and their removal."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PREFIX = "jepsen-like"
FOLDER = Path("/run/netns")
TUN = Path("/dev/net/tun")


def prefix_of(pid: int) -> str:
    """Return the beginning of the names of a run's namespaces, by its process."""
    return f"{PREFIX}-{pid}"


def namespace_of(prefix: str, host: str) -> str:
    return f"{prefix}-{host}"


def address_of(place: int) -> str:
    """Return the address of a host. Namespaces have no way out, so all runs may use the same
    ones.
    """
    return f"10.99.0.{place + 1}"


def remove_orphans() -> None:
    """Remove the namespaces of runs whose processes are gone: their switch was killed, too."""
    if not FOLDER.is_dir():
        return
    for path in FOLDER.glob(f"{PREFIX}-*-*"):
        pid = path.name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", path.name], check=False)


def remove_namespaces(prefix: str) -> None:
    """Remove the namespaces of one run, whose processes have ended."""
    for path in FOLDER.glob(f"{prefix}-*") if FOLDER.is_dir() else ():
        subprocess.run(["ip", "netns", "del", path.name], check=False)


def why_not() -> str | None:
    """Return why this machine has no namespaces for a run; None if it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not TUN.exists():
        return f"there is no {TUN}"
    tools = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    if tools:
        return f"{' and '.join(tools)} cannot be found"
    return _refused()


def _refused() -> str | None:
    """Return what the system says to a namespace, which root of a container may not have."""
    prefix = f"{prefix_of(os.getpid())}-probe"
    name = namespace_of(prefix, "host")
    try:
        for words in (["netns", "add", name], ["-n", name, "link", "set", "lo", "up"]):
            tried = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
            if tried.returncode != 0:
                return f"ip {words[0]}: {tried.stderr.strip() or 'it failed'}"
    finally:
        remove_namespaces(prefix)
    return None
