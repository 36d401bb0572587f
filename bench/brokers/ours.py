"""Our brokers and our name server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dledger
from bench.brokers.group import NAMESERVER, Addresses, Brokers, Program
from bench.place import member_ids
from dledger.free_ports import free_addresses


def _addresses(folder: Path) -> Addresses:
    ids = member_ids()
    nameserver, *others = free_addresses(1 + 2 * len(ids))
    members = dict(zip(ids, others[: len(ids)], strict=True))
    return Addresses(folder, nameserver, members, dict(zip(ids, others[len(ids) :], strict=True)))


def _programs(at: Addresses) -> dict[str, Program]:
    # They end when this process ends in any way.
    shared = ["--exit-with-stdin"]
    # Compiled modules, as an installation has them.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(at.folder.parent / "pyc")}
    peers = ",".join(f"{name}={address}" for name, address in at.inner.items())
    nameserver = [sys.executable, "-m", "nameserver", "--listen", at.nameserver, *shared]
    for module in ("nameserver", "broker"):
        helped = [sys.executable, "-m", module, "--help"]
        subprocess.run(helped, stdout=subprocess.DEVNULL, env=os.environ | compiled, check=True)
    programs = {NAMESERVER: Program(nameserver, compiled)}
    for name, address in at.members.items():
        command = [
            *(sys.executable, "-m", "broker", "--group", "bench", "--node", name),
            *("--peers", peers, "--listen", address, "--nameservers", at.nameserver),
            *("--dir", str(at.folder / name), *shared),
        ]
        programs[name] = Program(command, compiled)
    return programs


OURS = Brokers("ours", "dledger", f"dledger {dledger.__version__}", _addresses, _programs)
