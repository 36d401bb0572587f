"""What brokers, and the name server that knows them, write to their logs when all is well."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

import dledger
from dledger.free_ports import free_ports
from dledger.node.admission_log import YOUNG_LOG_ENTRIES
from nameserver.server import serve_nameserver
from remoting.net.address import Address
from tests.broker.one_broker import Client, running_broker, until
from tests.broker.three_brokers import group_of_three
from tests.dledger.node.test_node import Group, Register
from tests.dledger.snapshots.test_install_nodes import caught_up


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    loud = [one for one in caplog.records if one.levelno >= logging.WARNING]
    # The last member that ends has nobody to hand leadership over to, and says so.
    return [one.getMessage() for one in loud if not one.name.endswith("ending")]


async def until_known(nursery: trio.Nursery, names: Address) -> None:
    client = Client(nursery, str(names))

    async def is_known() -> bool:
        return (await client.ask(105, topic="TBW102")).code == 0

    await until(is_known)


async def test_neither_the_start_of_a_group_nor_its_end_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with trio.open_nursery() as nursery:
        names = await nursery.start(partial(serve_nameserver, "127.0.0.1", 0))
        async with group_of_three(tmp_path, (str(names),)) as group:
            await group.leader()
            await until_known(nursery, names)
            for node_id, broker in list(group.brokers.items()):
                await broker.end()
                group.stop(node_id)
        with trio.fail_after(10):
            while "closed its connection and is dropped" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert warnings_of(caplog) == []


async def test_a_broker_that_ends_without_a_word_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        names = await nursery.start(partial(serve_nameserver, "127.0.0.1", 0))
        async with running_broker(tmp_path, nameservers=(str(names),)) as (_broker, own):
            await until_known(own, names)
            own.cancel_scope.cancel()
        with trio.fail_after(10):
            while "is dropped" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert len(warnings_of(caplog)) == 1


async def test_a_broker_that_ends_while_it_registers_does_not_warn_of_its_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = trio.Event()

    async def never_answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        asked.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, never_answer, [listener]))
        names = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        async with running_broker(tmp_path, nameservers=(names,)) as (_broker, own):
            with trio.fail_after(10):
                await asked.wait()
            own.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    assert warnings_of(caplog) == []


async def test_a_name_server_that_ends_does_not_warn_of_its_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (port,) = free_ports(1)
    async with (
        running_broker(tmp_path, nameservers=(f"127.0.0.1:{port}",)) as (_broker, own),
        trio.open_nursery() as nursery,
    ):
        names = await nursery.start(partial(serve_nameserver, "127.0.0.1", port))
        await until_known(own, names)
        nursery.cancel_scope.cancel()
    said = [one for one in caplog.records if "is dropped" in one.getMessage()]
    assert [one.levelno for one in said] == [logging.INFO]


@pytest.mark.parametrize("is_young", [True, False])
async def test_a_member_without_the_log_is_warned_of_when_the_group_is_not_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_young: bool
) -> None:
    caplog.set_level(logging.INFO)
    group = Group(tmp_path, 3)
    async with AsyncExitStack() as stack:
        for name in ("n0", "n1"):
            node = dledger.open_node(group.config(name), Register())
            group.nodes[name] = await stack.enter_async_context(node)
        leader = await group.leader()
        if not is_young:
            await leader.append_many([b"x"] * YOUNG_LOG_ENTRIES)
        late = dledger.open_node(group.config("n2"), Register())
        group.nodes["n2"] = await stack.enter_async_context(late)
        await caught_up([leader, group.nodes["n2"]])
        with trio.fail_after(10):
            while not group.nodes["n2"].status().proven:  # noqa: ASYNC110
                await trio.sleep(0.01)
    said = [one for one in caplog.records if "is new or lost data" in one.getMessage()]
    wanted = logging.INFO if is_young else logging.WARNING
    assert {one.levelno for one in said} == {wanted}
