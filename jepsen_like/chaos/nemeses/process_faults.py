"""Faults of processes: kill, stop, freeze, restarts, transfers of leadership; and faults of the
processes beside a group: its name server, its clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import OrderFailed
from jepsen_like.chaos.nemeses.executor import (
    Done,
    Executor,
    Executors,
    Skipped,
    absent,
    check_whole,
    leader_of,
    target_of,
)
from jepsen_like.chaos.side_process import SideProcess

# A member that was started again leads or follows by then, or there is a fault.
BACK_TIMEOUT_S = 20.0
TRANSFER_TIMEOUT_S = 5.0
NAME_SERVER, CLIENTS = "name-server", "clients"
_ABSENT = {
    NAME_SERVER: "this workload has no name server",
    CLIENTS: "the clients of this workload cannot go on where others stopped",
}


@asynccontextmanager
async def kill(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Kill -9, and keep them down until the fault ends."""
    members = group.present if kind == "kill-all" else [target_of(group, chance, kind)]
    with ExitStack() as stack:
        for member in members:
            stack.enter_context(member.held_down())
            member.kill()
        yield Done(tuple(member.name for member in members))


@asynccontextmanager
async def stop(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Ask a member to end, and keep it down until the fault ends."""
    member = target_of(group, chance, kind)
    with member.held_down():
        member.stop()
        yield Done((member.name,))


@asynccontextmanager
async def freeze(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Freeze a member, or all of them, for a while."""
    everyone = kind.startswith("freeze-all")
    running = [member for member in group.present if member.runs]
    members = running if everyone else [target_of(group, chance, kind)]
    for member in members:
        member.freeze()
    try:
        yield Done(tuple(member.name for member in members))
    finally:
        for member in members:
            member.resume()


@asynccontextmanager
async def rolling_restart(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    """Stop and start all members, the leader last, as an upgrade does."""
    check_whole(group)
    leader = group.leader
    order = sorted(group.present, key=lambda member: (member is leader, member.name))
    for member in order:
        member.stop()
        await member.ended()
        if not await group.wait_healthy(BACK_TIMEOUT_S):
            break
    yield Done(tuple(member.name for member in order))


@asynccontextmanager
async def transfer(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
    leader = leader_of(group)
    try:
        new_leader = await leader.order("transfer", TRANSFER_TIMEOUT_S)
    except OrderFailed as error:
        raise Skipped(str(error)) from error
    yield Done((leader.name,), {"new_leader": new_leader})


PROCESS_FAULTS: Executors = {
    "kill": kill,
    "stop": stop,
    "freeze": freeze,
    "rolling": rolling_restart,
    "transfer": transfer,
}


def side_faults(processes: Mapping[str, SideProcess]) -> Executors:
    """Return what kills and freezes processes beside a group.

    Args:
        processes: by the names of their nemeses. Missing ones, such as the name server of a group
            without one, are skipped.
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
