"""A node's calls that wait are refused at once in another loop, where nothing would wake them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports

# What each takes; the calls of a node that wait are found by their kind.
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "append": (b"body",),
    "append_many": ([b"body"],),
    "change": ([],),
    "entries_from": (10**6, 60.0),
    "read": (),
    "snapshot": (),
    "transfer_leadership": (),
    "wait_appliable": (10**6,),
    "wait_applied": (10**6,),
}
FOR_THE_HOST = {"closed", "run"}
LIMIT_S = 20


async def test_every_call_that_waits_is_refused_in_the_loop_of_another_thread(
    tmp_path: Path,
) -> None:
    waiting = {
        name
        for name, method in inspect.getmembers(dledger.Node, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in FOR_THE_HOST
    }
    assert waiting == set(ARGUMENTS)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = dledger.NodeConfig(
        group="g", node_id="n0", peers={"n0": address}, data_dir=tmp_path, new=True
    )
    async with dledger.open_node(config, dledger.LogOnly()) as node:
        async for change in node.role_changes():
            if change.ready:
                break
        for name, arguments in ARGUMENTS.items():
            call = getattr(node, name)
            with pytest.raises(dledger.OtherLoop, match="node n0 runs in the loop of another"):
                await trio.to_thread.run_sync(elsewhere, call, arguments)
        for refused in (lambda: node.submit([b"body"], print), node.role_changes, node.committed):
            with pytest.raises(dledger.OtherLoop):
                await trio.to_thread.run_sync(first_of, refused)
        assert (await node.append(b"body")).index > 0


def elsewhere(call: Callable[..., Awaitable[object]], arguments: tuple[object, ...]) -> None:
    async def task() -> None:
        with trio.fail_after(LIMIT_S):
            await call(*arguments)

    trio.run(task)


def first_of(call: Callable[[], object]) -> None:
    async def task() -> None:
        with trio.fail_after(LIMIT_S):
            found = call()
            assert found is not None
            async for _ in found:  # type: ignore[attr-defined]
                pass

    trio.run(task)
