"""Our brokers and our name server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dledger
from bench.brokers.group import NAMESERVER, PROXY, Addresses, Brokers, Program
from bench.place import member_ids
from dledger.free_ports import free_addresses
from dledger_mq.clusters.certificate_folder import CertificateFolder
from remoting.net.access_file import new_access_file


def _addresses(folder: Path) -> Addresses:
    ids = member_ids()
    nameserver, proxy, *others = free_addresses(2 + 2 * len(ids))
    members = dict(zip(ids, others[: len(ids)], strict=True))
    inner = dict(zip(ids, others[len(ids) :], strict=True))
    return Addresses(folder, nameserver, members, inner, proxy)


def _programs(
    at: Addresses, options: Callable[[str], tuple[str, ...]] = lambda _name: ()
) -> dict[str, Program]:
    """Return the programs; `options`: more options of the name server or a member, by its name."""
    # They end when this process ends in any way.
    shared = ["--exit-with-stdin"]
    # Compiled modules, as an installation has them.
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(at.folder.parent / "pyc")}
    peers = ",".join(f"{name}={address}" for name, address in at.inner.items())
    nameserver = [sys.executable, "-m", "nameserver", "--listen", at.nameserver, *shared]
    nameserver += options(NAMESERVER)
    for module in ("nameserver", "broker", "proxy"):
        helped = [sys.executable, "-m", module, "--help"]
        subprocess.run(helped, stdout=subprocess.DEVNULL, env=os.environ | compiled, check=True)
    proxy = [sys.executable, "-m", "proxy", "--listen", at.proxy, "--nameservers", at.nameserver]
    programs = {
        NAMESERVER: Program(nameserver, compiled),
        PROXY: Program([*proxy, *shared], compiled),
    }
    for name, address in at.members.items():
        command = [
            *(sys.executable, "-m", "broker", "--group", "bench", "--node", name),
            *("--peers", peers, "--listen", address, "--nameservers", at.nameserver),
            *("--dir", str(at.folder / name), *shared, *options(name)),
        ]
        programs[name] = Program(command, compiled)
    return programs


def protected(folder: Path, *, has_access: bool, has_tls: bool) -> Brokers:
    """Return our brokers with access control, with TLS, or both. Clients may speak plainly as well.

    `folder` is made for the files that they need.
    """
    folder.mkdir(parents=True)
    access, certificates = folder / "access.toml", CertificateFolder(folder / "certificates")
    admin = new_access_file(access, "admin").admin if has_access else None
    if has_tls:
        make = [sys.executable, "-m", "dledger_mq", "certificates", str(certificates.path)]
        subprocess.run(make, stdout=subprocess.DEVNULL, check=True)

    def options(name: str) -> tuple[str, ...]:
        found = ["--access", str(access)] if has_access else []
        if has_tls:
            found += [*certificates.server_options(name), "--tls-mode", "permissive"]
        return tuple(found)

    programs = partial(_programs, options=options)
    return OURS._replace(programs=programs, credentials=admin)


OURS = Brokers("ours", "dledger", f"dledger {dledger.__version__}", _addresses, _programs)
