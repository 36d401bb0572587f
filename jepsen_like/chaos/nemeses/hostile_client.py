"""A client without credentials that floods a group, which must not lose its leader by it alone."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executors, check_whole
from jepsen_like.chaos.side_process import SideProcess
from jepsen_like.chaos.wiring import CLIENTS_HOST, Wiring
from jepsen_like.report.told_run import GapRow

NEMESIS, PREFIX = "hostile", "hostile-"
# A good client without an answer for so long beside a hostile one is not served. An election takes
# less, and a busy machine a good deal of it.
UNSERVED_S = 5.0


@dataclass
class HostileClient:
    """Runs a hostile client as a process; `is_alone` returns whether nothing else is broken."""

    wiring: Wiring
    log: Path
    finding: Callable[[str], None]
    is_alone: Callable[[], bool]

    @property
    def executors(self) -> Executors:
        return {NEMESIS: self._carried_out}

    @asynccontextmanager
    async def _carried_out(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        # The run has waited for that: from now on clients wait because of the hostile one.
        check_whole(group)
        terms, alone = terms_of(group), self.is_alone()
        said: list[str] = []
        command = self._command(group, chance, kind)
        async with trio.open_nursery() as nursery:
            process = SideProcess("hostile client", command, self.log, said.append)
            nursery.start_soon(process.run)
            await process.started()
            names = tuple(member.name for member in group.present)
            yield Done(names, effect=lambda: {"connected": int(said[-1]) if said else 0})
            if alone and self.is_alone() and (elected := elections(terms, terms_of(group))):
                self.finding(f"{kind} alone: {elected}")
            nursery.cancel_scope.cancel()

    def _command(self, group: Group, chance: Chance, kind: str) -> list[str]:
        hosts = [self.wiring.addresses[member.name] for member in group.present]
        ports = [port for host in hosts for port in (host.clients, host.peer)]
        words = [kind.removeprefix(PREFIX), str(chance.randrange(1 << 30)), *ports]
        argv = [sys.executable, "-m", "jepsen_like.chaos.hostile", *words]
        return self.wiring.command(CLIENTS_HOST, argv)


def terms_of(group: Group) -> dict[str, int]:
    return {member.name: int(member.status["term"]) for member in group.present if member.status}


def elections(before: dict[str, int], after: dict[str, int]) -> str | None:
    """Return what tells of an election between two looks; None if nothing does."""
    first, last = max(before.values(), default=0), max(after.values(), default=0)
    if last <= first:
        return None
    return f"the group elected: its term was {first}, and is {last}"


def unserved(rows: Sequence[GapRow]) -> list[str]:
    """Return the good clients that waited too long beside a hostile one alone, a sentence each."""
    return [
        f"{row.kind} alone: {row.who} had no answer for {row.max_s:.1f} s"
        for row in rows
        if row.kind.startswith(PREFIX) and "+" not in row.kind and row.max_s >= UNSERVED_S
    ]
