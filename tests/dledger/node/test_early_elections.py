"""The end of a leader's process as the others see it, on real sockets, and what looks like it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import dledger
from dledger.free_ports import free_ports
from dledger.network.host_connection import (
    LEAST_PAUSE_S,
    LEAST_SHARE,
    RetryPause,
    no_process_listens,
)

# So long that what happens well within it is no timer's doing.
TIMEOUT_MS = 2_000


class Process:
    """A node that can be ended at once, as if killed."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.node: dledger.Node

    async def run(
        self,
        config: dledger.NodeConfig,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with self.scope:
            async with dledger.open_node(config, dledger.LogOnly()) as self.node:
                task_status.started()
                await trio.sleep_forever()

    @property
    def view(self) -> tuple[str | None, int]:
        """Who leads, and in which term."""
        return self.node.status().leader, self.node.term


class Door:
    """Stands before a member: passes connections on while it is open. Shut, it breaks them all."""

    def __init__(self, port: int, behind: int) -> None:
        self._port, self._behind = port, behind
        self._scope = trio.CancelScope()

    async def open(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._scope = trio.CancelScope()
        with self._scope:
            listeners = await trio.open_tcp_listeners(self._port, host="127.0.0.1")
            task_status.started()
            await trio.serve_listeners(self._pass_on, listeners)

    def shut(self) -> None:
        self._scope.cancel()

    async def _pass_on(self, outside: trio.SocketStream) -> None:
        async with outside:
            try:
                inside = await trio.open_tcp_stream("127.0.0.1", self._behind)
            except OSError:
                return  # the member does not listen yet
            async with inside, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, outside, inside, nursery.cancel_scope)
                nursery.start_soon(self._pump, inside, outside, nursery.cancel_scope)

    @staticmethod
    async def _pump(
        source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(65536):
                await sink.send_all(data)
        except trio.BrokenResourceError:
            pass  # the end of one direction, as below
        scope.cancel()


@asynccontextmanager
async def three(
    folder: Path,
) -> AsyncIterator[tuple[dict[str, Process], dict[tuple[str, str], Door], trio.Nursery]]:
    """Three members; each dials each other one through a door of its own: (who, whom)."""
    names = ["n0", "n1", "n2"]
    inner = dict(zip(names, free_ports(3), strict=True))
    pairs = list(permutations(names, 2))
    outer = dict(zip(pairs, free_ports(len(pairs)), strict=True))
    processes = {name: Process() for name in names}
    doors = {pair: Door(port, inner[pair[1]]) for pair, port in outer.items()}
    async with trio.open_nursery() as nursery:
        for door in doors.values():
            await nursery.start(door.open)
        for name in names:
            ports = {peer: outer.get((name, peer), inner[peer]) for peer in names}
            config = dledger.NodeConfig(
                group="g",
                node_id=name,
                peers={peer: f"127.0.0.1:{port}" for peer, port in ports.items()},
                data_dir=folder / name,
                election_timeout_ms=TIMEOUT_MS,
            )
            await nursery.start(processes[name].run, config)
        yield processes, doors, nursery
        nursery.cancel_scope.cancel()


async def follows(process: Process, wanted: str | None = None) -> str:
    """Wait until a member follows somebody, or that one; whom."""
    with trio.fail_after(30):
        async for change in process.node.role_changes():
            if change.leader is not None and wanted in (None, change.leader):
                return change.leader
    raise AssertionError("the node stopped")


async def settled(processes: dict[str, Process]) -> str:
    """Wait until all follow one leader, and their connections have stood for a while."""
    leader = await follows(processes["n0"])
    for process in processes.values():
        await follows(process, leader)
    await trio.sleep(1.1)
    assert len({process.view for process in processes.values()}) == 1
    return leader


async def test_the_end_of_a_leaders_process_is_answered_long_before_a_timer_fires(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (processes, doors, _):
        leader = await settled(processes)
        for (_, whom), door in doors.items():
            if whom == leader:
                door.shut()  # the machine refuses what nobody listens for
        processes.pop(leader).scope.cancel()
        with trio.fail_after(TIMEOUT_MS / 1000 * 0.75):
            successor = None
            for process in processes.values():
                async for change in process.node.role_changes():
                    if change.leader not in (None, leader):
                        successor = change.leader
                        break
            await processes[str(successor)].node.append(b"goes on")


async def test_a_leader_that_cannot_be_dialled_and_is_heard_is_not_taken_for_gone(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (processes, doors, nursery):
        leader = await settled(processes)
        before = processes[leader].view
        shut = [door for (_, whom), door in doors.items() if whom == leader]
        for door in shut:
            door.shut()  # what the others had dialled breaks, and is refused from now on
        for _ in range(40):
            await trio.sleep(0.02)
            assert {process.view for process in processes.values()} == {before}
        for door in shut:
            await nursery.start(door.open)
        with trio.fail_after(10):
            await processes[leader].node.append(b"goes on")
        assert {process.view for process in processes.values()} == {before}


async def test_a_member_that_takes_a_living_leader_for_gone_deposes_nobody(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (processes, doors, nursery):
        leader = await settled(processes)
        wrong, right = sorted(processes.keys() - {leader})
        before = processes[leader].view
        shut = [doors[wrong, leader], doors[leader, wrong]]
        for door in shut:
            door.shut()
        with trio.fail_after(1.0):
            async for change in processes[wrong].node.role_changes():
                if change.role == "pre-candidate":
                    break
        for _ in range(40):
            await trio.sleep(0.02)
            assert processes[right].view == processes[leader].view == before
        for door in shut:
            await nursery.start(door.open)
        await follows(processes[wrong], leader)
        assert {process.view for process in processes.values()} == {before}


# --- signs ----------------------------------------------------------------------------------------


async def test_only_a_refusal_says_that_no_process_listens() -> None:
    [port] = free_ports(1)
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(OSError, match="failed") as refused:
            await trio.open_tcp_stream(host, port)
        assert no_process_listens(refused.value)
    assert no_process_listens(ConnectionRefusedError())
    assert not no_process_listens(ConnectionResetError())
    assert not no_process_listens(trio.TooSlowError())
    mixed = OSError("all attempts failed")
    mixed.__cause__ = ExceptionGroup("", [ConnectionRefusedError(), TimeoutError()])
    assert not no_process_listens(mixed)


async def pause_s(pause: RetryPause) -> float:
    began = trio.current_time()
    await pause.wait()
    return trio.current_time() - began


def within(found: float, longest: float) -> bool:
    """Whether this is a pause of that length, of which each takes a random part."""
    return LEAST_SHARE * longest <= found <= longest + 1e-9


async def test_attempts_in_vain_are_further_and_further_apart(autojump_clock: MockClock) -> None:
    pause = RetryPause(0.05, 1.0)
    longest = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert all([within(await pause_s(pause), each) for each in longest])


async def test_callers_that_lost_a_peer_together_do_not_dial_it_in_step(
    autojump_clock: MockClock,
) -> None:
    pauses = [RetryPause(0.05, 0.2) for _ in range(8)]
    dialled_at = [sum([await pause_s(pause) for _ in range(6)]) for pause in pauses]
    assert max(dialled_at) - min(dialled_at) > 0.05


async def test_the_end_of_a_connection_that_had_stood_is_looked_into_at_once(
    autojump_clock: MockClock,
) -> None:
    pause = RetryPause(0.05, 1.0)
    pause.connected()
    await trio.sleep(1.0)
    found = [await pause_s(pause) for _ in range(4)]
    assert found[0] == pytest.approx(0.0)
    assert all(within(found[at], 2 ** (at - 1) * LEAST_PAUSE_S) for at in (1, 2, 3))


async def test_a_connection_that_breaks_again_and_again_is_not_dialled_in_a_busy_loop(
    autojump_clock: MockClock,
) -> None:
    pause = RetryPause(0.05, 1.0)
    for _ in range(5):
        pause.connected()
        await trio.sleep(0.9)
        assert within(await pause_s(pause), 0.05)


async def test_news_of_the_other_side_cuts_a_pause_short(autojump_clock: MockClock) -> None:
    pause = RetryPause(0.05, 1.0)
    for _ in range(6):
        await pause.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pause.wait)
        began = trio.current_time()
        await trio.sleep(0.3)
        pause.cut_short()
    assert trio.current_time() - began == pytest.approx(0.3 + LEAST_PAUSE_S)
    pause.cut_short()  # between two pauses it means nothing
    assert within(await pause_s(pause), 1.0)
