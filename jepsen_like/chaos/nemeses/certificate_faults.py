"""Renews the certificates of all servers while they run, also by another authority."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trio

from dledger_mq.clusters.certificate_folder import NAMESERVER, CertificateFolder
from dledger_mq.clusters.development_authority import add_authority, renew_certificates
from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executors, Skipped, check_whole
from jepsen_like.chaos.side_process import SideProcess
from jepsen_like.chaos.wiring import CLIENTS_HOST, NAMESERVER_HOST, Wiring

NEMESIS = "certificates"
DAYS = 1
# Servers have read their files again by then, on a busy machine too.
READ_S = 1.0
LOOK_TIMEOUT_S = 20.0
LISTENING = "listening on"


@dataclass
class CertificateFaults:
    """Renews what a folder has. A server that shows an earlier certificate later is a finding."""

    folder: CertificateFolder
    wiring: Wiring
    name_server: SideProcess
    finding: Callable[[str], None]
    now: Callable[[], datetime]

    @property
    def executors(self) -> Executors:
        return {NEMESIS: self._carried_out}

    @asynccontextmanager
    async def _carried_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        check_whole(group, ": a member that begins cannot be told to read again")
        if not self.name_server.has_said(LISTENING):
            raise Skipped("the name server begins")
        if kind == "new-authority":
            add_authority(self.folder, self.now())
            await self._have_all_read(group)
        renew_certificates(self.folder, DAYS, self.now())
        await self._have_all_read(group)
        names = tuple(member.name for member in group.present)
        renewed: list[str] = []
        yield Done(names, effect=lambda: {"renewed": len(renewed)})
        renewed += await self._renewed(group)

    async def _have_all_read(self, group: Group) -> None:
        for member in group.present:
            member.hang_up()
        self.name_server.hang_up()
        await trio.sleep(READ_S)

    async def _renewed(self, group: Group) -> list[str]:
        """Return the servers that show their new certificate."""
        hosts = {member.name: member.name for member in group.present if member.status}
        hosts[NAMESERVER] = NAMESERVER_HOST
        addresses = {name: self.wiring.addresses[host].clients for name, host in hosts.items()}
        shown = await self._shown(addresses)
        found = []
        for name, address in addresses.items():
            if address not in shown:
                continue  # it is away, or clients are cut off
            if shown[address] == certificate_in(self.folder.certificate(name)):
                found.append(name)
            else:
                self.finding(f"{name} shows an earlier certificate after it was renewed")
        return found

    async def _shown(self, addresses: Mapping[str, str]) -> dict[str, str]:
        argv = [sys.executable, "-m", "jepsen_like.chaos.shown_certificates", *addresses.values()]
        with trio.move_on_after(LOOK_TIMEOUT_S):
            ended = await trio.run_process(
                self.wiring.command(CLIENTS_HOST, argv),
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            found: dict[str, str] = json.loads(ended.stdout)
            return found
        return {}


def certificate_in(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
