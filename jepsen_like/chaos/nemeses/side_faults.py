"""Faults of what is beside a group: its name server, its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executor, Executors, absent
from jepsen_like.chaos.side_process import SideProcess
from jepsen_like.simulation.chance import Chance

NAME_SERVER, CLIENTS = "name-server", "clients"
_ABSENT = {
    NAME_SERVER: "this workload has no name server",
    CLIENTS: "the clients of this workload cannot go on where others stopped",
}


def side_faults(processes: Mapping[str, SideProcess]) -> Executors:
    """What kills and freezes processes beside a group.

    Args:
        processes: by the names of the nemeses that are about them. What is not there, such as a
            name server of a group that has none, is left out.
    """
    return {
        name: _executor(processes[name]) if name in processes else absent(reason)
        for name, reason in _ABSENT.items()
    }


def _executor(process: SideProcess) -> Executor:
    @asynccontextmanager
    async def carried_out(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        await process.started()
        if kind.startswith("freeze"):
            process.freeze()
            try:
                yield Done((process.name,))
            finally:
                process.resume()
            return
        with process.held_down():
            process.kill()
            await process.ended()
            yield Done((process.name,))

    return carried_out
