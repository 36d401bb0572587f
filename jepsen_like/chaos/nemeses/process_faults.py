"""Faults of processes: kill, stop, freeze, restarts, transfers of leadership; and faults of the
processes beside a group: its name server, its proxies, its clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
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
NAME_SERVER, CLIENTS, PROXY = "name-server", "clients", "proxy"
_ABSENT = {
    NAME_SERVER: "this workload has no name server",
    PROXY: "the clients of this run need no proxy",
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
        processes: by their names, which are those of their nemeses, or begin so: "proxy-0".
            Missing ones, such as the name server of a group without one, are skipped.
    """
    found = {
        name: [one for key, one in processes.items() if key == name or key.startswith(f"{name}-")]
        for name in _ABSENT
    }
    return {
        name: _executor(found[name]) if found[name] else absent(reason)
        for name, reason in _ABSENT.items()
    }


def _executor(processes: Sequence[SideProcess]) -> Executor:
    @asynccontextmanager
    async def carried_out(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        hit = list(processes)
        if len(hit) > 1 and "-all-" not in kind:
            hit = [chance.choice(hit)]
        done = Done(tuple(process.name for process in hit))
        with ExitStack() as stack:
            for process in hit:
                await process.started()
                if kind.startswith("freeze"):
                    stack.callback(process.resume)
                    process.freeze()
                    continue
                stack.enter_context(process.held_down())
                if kind.startswith("stop"):
                    process.stop()
                else:
                    process.kill()
            if not kind.startswith("freeze"):
                for process in hit:
                    await process.ended()
            yield done

    return carried_out
