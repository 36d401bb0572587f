"""A node in a program that runs asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

import dledger
from dledger import for_asyncio
from dledger.free_ports import free_ports
from dledger.machines import Objects, ReplicatedCounter


def run(
    folder: Path, use: Callable[[for_asyncio.AsyncioNode, ReplicatedCounter], Awaitable[None]]
) -> None:
    counter = ReplicatedCounter()
    config = dledger.NodeConfig(
        group="bridge",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{free_ports(1)[0]}"},
        data_dir=folder,
        store=dledger.StoreConfig(segment_bytes=8 << 20, index_segment_bytes=1 << 16),
        election_timeout_ms=100,
        heartbeat_interval_ms=20,
        new=True,
    )

    async def main() -> None:
        machine = dledger.WithSessions(Objects(counter=counter))
        async with for_asyncio.open_node(config, machine) as node:
            await node.read(lambda: None)
            await use(node, counter)

    asyncio.run(main())


def test_tasks_of_asyncio_append_and_read(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        calls = counter.through(node)
        results = await asyncio.gather(*(calls.add(1) for _ in range(100)))
        assert sorted(results) == list(range(1, 101))
        assert await node.read(lambda: counter.value) == 100
        assert len(await node.append_many([b"no command", b"neither"])) == 2
        assert (await node.status()).ready
        assert (await node.snapshot()).header.index > 100
        with pytest.raises(dledger.TransferFailed):
            await node.transfer_leadership("nobody")

    run(tmp_path, use)


def test_a_session_works_from_asyncio(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        async with node.session() as session:
            assert await counter.through(session).add(4) == 4

    run(tmp_path, use)


def test_a_cancelled_task_gives_up_the_wait_and_leaves_the_node_in_order(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        task = asyncio.ensure_future(counter.through(node).add(1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await counter.through(node).add(1) in (1, 2)

    run(tmp_path, use)


def test_an_exception_in_the_block_closes_the_node(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        run(tmp_path, use)

    async def again(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        assert await counter.through(node).get() == 0

    run(tmp_path, again)  # the folder is not locked


def test_tasks_of_asyncio_use_a_log_over_the_network(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        peers = dict((await node.status()).members.addresses)
        async with for_asyncio.connect(peers, group="bridge") as log:
            first = await log.append(b"first")
            rest = await asyncio.gather(*(log.append(b"%d" % number) for number in range(50)))
            assert len({each.index for each in rest}) == 50
            (many,) = await log.append_many([b"many"])
            assert (await log.read(many.index)).body == b"many"
            found = [entry.body async for entry in log.tail(first.index, follow=False)]
            assert (found[0], found[-1], len(found)) == (b"first", b"many", 52)
            async for entry in log.tail(many.index):
                assert entry.body == b"many"
                break
            assert (await log.status())["node_id"] == "n0"
            async with log.session() as session:
                assert await counter.through(session).add(4) == 4
            assert await counter.through(log).add(4) == 8

    run(tmp_path, use)


def test_the_calls_of_trio_say_that_they_are_not_for_asyncio(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = dledger.NodeConfig(
        group="bridge", node_id="n0", peers={"n0": address}, data_dir=tmp_path, new=True
    )

    async def open_node() -> None:
        async with dledger.open_node(config, dledger.LogOnly()):
            pytest.fail("it opened")

    async def open_host() -> None:
        async with dledger.open_host(dledger.HostConfig(address=address)):
            pytest.fail("it opened")

    with pytest.raises(dledger.NotInTrio, match=r"dledger\.for_asyncio\.open_node"):
        asyncio.run(open_node())
    with pytest.raises(dledger.NotInTrio, match=r"dledger\.for_asyncio\.open_host"):
        asyncio.run(open_host())
    assert not list(tmp_path.iterdir()), "nothing was done"


def test_appends_of_a_session_are_made_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        for _ in range(10):
            async with node.session() as session:
                calls = [counter.through(session).add(1) for _ in range(20)]
                results = await asyncio.gather(*calls)
            assert results == sorted(results)

    run(tmp_path, use)


def test_iterators_lose_nothing_to_a_wait_that_times_out(tmp_path: Path) -> None:
    async def use(node: for_asyncio.AsyncioNode, counter: ReplicatedCounter) -> None:
        first = (await node.append(b"first")).index
        entries = aiter(node.committed(first))
        assert (await anext(entries)).body == b"first"
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(entries), 0.01)
        await node.append(b"second")
        assert (await anext(entries)).body == b"second"
        role = await anext(aiter(node.role_changes()))
        assert role == node.role
        assert node.is_ready_leader

    run(tmp_path, use)


def test_a_node_that_stops_by_itself_cancels_the_block_and_gives_the_reason(tmp_path: Path) -> None:
    class Raises:
        def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
            raise KeyError("customer 17")

    config = dledger.NodeConfig(
        group="dies",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{free_ports(1)[0]}"},
        data_dir=tmp_path,
        new=True,
    )

    async def main() -> None:
        async with for_asyncio.open_node(config, Raises()) as node:
            await node.read(lambda: None)
            with pytest.raises(dledger.OutcomeUnknown) as caught:
                await node.append(b"x")
            causes.append(caught.value.__cause__)
            await asyncio.sleep(60)

    causes: list[BaseException | None] = []
    with pytest.raises(dledger.MachineFailed, match="customer 17"):
        asyncio.run(asyncio.wait_for(main(), 30))
    assert isinstance(causes[0], dledger.MachineFailed)
