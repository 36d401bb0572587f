"""Whatever ends a node ends every call that waits for it, wherever its task is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports
from tests.dledger.running_members import ready, until

Wait = Callable[[dledger.Node], Awaitable[object]]


class Refusing:
    """Raises on one body, so that the node fails."""

    def apply(self, entries: Sequence[dledger.Entry]) -> list[None]:
        if any(entry.body == b"poison" for entry in entries):
            raise ValueError("poison")
        return [None] * len(entries)


async def committed(node: dledger.Node) -> None:
    async for _ in node.committed():
        pass


async def role_changes(node: dledger.Node) -> None:
    async for _ in node.role_changes():
        pass


async def far_ahead(node: dledger.Node) -> None:
    await node.wait_applied(1_000_000)


async def far_ahead_in_the_log(node: dledger.Node) -> None:
    await node.wait_appliable(1_000_000)


async def append(node: dledger.Node) -> None:
    await node.append(b"for a quorum that is not there")


async def append_many(node: dledger.Node) -> None:
    await node.append_many([b"for a quorum", b"that is not there"])


async def read(node: dledger.Node) -> None:
    await node.read()


async def change(node: dledger.Node) -> None:
    await node.change([dledger.AddLearner("n9", "127.0.0.1:9")])


async def add_voter(node: dledger.Node) -> None:
    await node.change([dledger.AddVoter("n9", "127.0.0.1:9")])


async def transfer(node: dledger.Node) -> None:
    (other,) = set(node.config.peers) - {node.config.node_id}
    await node.transfer_leadership(other)


# What each raises; with more than one, the entry may be in the log already.
ALONE: dict[str, tuple[Wait, tuple[type[Exception], ...]]] = {
    "committed": (committed, (dledger.NodeClosing,)),
    "role_changes": (role_changes, (dledger.NodeClosing,)),
    "wait_applied": (far_ahead, (dledger.NodeClosing,)),
    "wait_appliable": (far_ahead_in_the_log, (dledger.NodeClosing,)),
    "change that waits for a learner": (add_voter, (dledger.NodeClosing, dledger.NodeClosed)),
}
CUT_OFF: dict[str, tuple[Wait, tuple[type[Exception], ...]]] = {
    "append": (append, (dledger.NodeClosed,)),
    "append_many": (append_many, (dledger.NodeClosed,)),
    "read": (read, (dledger.NodeClosing,)),
    "change": (change, (dledger.NodeClosed,)),
}
HANDED_OVER: dict[str, tuple[Wait, tuple[type[Exception], ...]]] = {
    "transfer_leadership": (transfer, (dledger.NodeClosing,)),
}


def config(folder: Path, name: str, peers: dict[str, str]) -> dledger.NodeConfig:
    return dledger.NodeConfig(
        group="g",
        node_id=name,
        peers=peers,
        data_dir=folder / name,
        election_timeout_ms=1000,
        heartbeat_interval_ms=50,
        new=True,
    )


class Ended:
    """How waits ended."""

    def __init__(self) -> None:
        self.how: dict[str, Exception | None] = {}

    async def wait(self, name: str, wait: Wait, node: dledger.Node) -> None:
        try:
            await wait(node)
        except Exception as error:
            self.how[name] = error


@pytest.mark.parametrize("by_failure", [False, True])
async def test_no_call_outlives_the_node_that_it_waits_for(
    tmp_path: Path, by_failure: bool
) -> None:
    ended = Ended()
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    with trio.fail_after(20):
        async with trio.open_nursery() as outside:
            try:
                async with dledger.open_node(config(tmp_path, "n0", peers), Refusing()) as node:
                    await ready(node)
                    for name, (wait, _) in ALONE.items():
                        outside.start_soon(ended.wait, name, wait, node)
                    await trio.sleep(0.1)
                    if by_failure:
                        await node.append(b"poison")
            except dledger.MachineFailed:
                assert by_failure
        for name, (_, errors) in ALONE.items():
            assert isinstance(ended.how[name], errors), name
            assert_caused(ended.how[name], dledger.MachineFailed if by_failure else None, name)
        for call in (anext(node.committed()), node.append(b"late"), node.read()):
            with pytest.raises(dledger.NodeClosing) as caught:
                await call  # what is there, too: its files are closed
            assert_caused(caught.value, dledger.MachineFailed if by_failure else None, "late")


@pytest.mark.parametrize("waits", [CUT_OFF, HANDED_OVER])
@pytest.mark.parametrize("by_failure", [False, True])
async def test_no_call_that_waits_for_a_quorum_outlives_the_node(
    tmp_path: Path,
    by_failure: bool,
    waits: dict[str, tuple[Wait, tuple[type[Exception], ...]]],
) -> None:
    ended = Ended()
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(2))}
    nodes: dict[str, dledger.Node] = {}
    scopes: dict[str, trio.CancelScope] = {}

    async def member(name: str) -> None:
        with trio.CancelScope() as scopes[name]:
            async with dledger.open_node(config(tmp_path, name, peers), Refusing()) as node:
                nodes[name] = node
                await trio.sleep_forever()

    async def fail_or_leave(leader: dledger.Node) -> None:
        if by_failure:
            leader._driver.fail(dledger.DiskFailed("sync", "data", OSError(5, "no disk")))
        else:
            scopes[leader.config.node_id].cancel()

    with trio.fail_after(20):
        async with trio.open_nursery() as outside:
            for name in peers:
                outside.start_soon(guarded, member, name)
            await until(lambda: len(nodes) == 2)
            leader = await ready(*nodes.values())
            (follower,) = set(peers) - {leader.config.node_id}
            scopes[follower].cancel()
            await until(lambda: not leader.status().peers[follower].connected)
            for name, (wait, _) in waits.items():
                outside.start_soon(ended.wait, name, wait, leader)
            await trio.sleep(0.05)
            await fail_or_leave(leader)
    for name, (_, errors) in waits.items():
        assert isinstance(ended.how[name], (*errors, dledger.LeadershipLost)), name
        if isinstance(ended.how[name], errors):
            assert_caused(ended.how[name], dledger.DiskFailed if by_failure else None, name)


def assert_caused(error: Exception | None, kind: type[Exception] | None, name: str) -> None:
    """A call that the end of a node cuts off says why the node could not go on."""
    cause = None if error is None else error.__cause__
    assert cause is None if kind is None else isinstance(cause, kind), (name, cause)


async def guarded(member: Callable[[str], Awaitable[None]], name: str) -> None:
    try:
        await member(name)
    except dledger.DiskFailed:
        return


async def test_an_error_that_nothing_foresaw_leaves_the_block_typed_and_with_its_cause(
    tmp_path: Path,
) -> None:
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    with trio.fail_after(20), pytest.raises(dledger.NodeFailed) as caught:
        await submit_what_raises(config(tmp_path, "n0", peers))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError" in str(caught.value)


async def submit_what_raises(settings: dledger.NodeConfig) -> None:
    async with dledger.open_node(settings, Refusing()) as node:
        await ready(node)
        node.submit([b"x"], lambda outcome: 1 / 0)  # type: ignore[arg-type]
        await trio.sleep_forever()


async def test_a_node_that_has_ended_does_not_say_that_it_serves(tmp_path: Path) -> None:
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    with trio.fail_after(20):
        async with dledger.open_node(config(tmp_path, "n0", peers), Refusing()) as node:
            await ready(node)
        assert not node.is_ready_leader
        assert not node.role.ready
        assert not node.status().ready
        for look in (lambda: node.read_bytes(0, 8), lambda: node.segment_begin(0)):
            with pytest.raises(dledger.NodeClosing):
                look()


async def test_a_state_is_never_fresh_within_a_limit_that_is_no_number(tmp_path: Path) -> None:
    peers = {"n0": f"127.0.0.1:{free_ports(1)[0]}"}
    with trio.fail_after(20):
        async with dledger.open_node(config(tmp_path, "n0", peers), Refusing()) as node:
            await ready(node)
            with pytest.raises(dledger.ReadUnavailable):
                node.read_stale(max_lag_s=float("nan"))
