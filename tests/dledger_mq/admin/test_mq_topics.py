"""Topics that administrators make and remove."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dledger_mq import Admin, Message, Producer, Rejected
from remoting.bodies.route import BrokerData, ClusterInfo
from remoting.net.errors import ConnectFailed
from remoting.wire.codes import RequestCode
from tests.dledger_mq.real_group import real_group
from tests.dledger_mq.scripted_cluster import ScriptedBroker, ScriptedNames, start


@pytest.mark.parametrize("permission", [2, 4])
async def test_a_topic_that_is_only_read_or_only_written_is_made_at_once(
    tmp_path: Path, permission: int
) -> None:
    async with real_group(tmp_path) as group:
        with trio.fail_after(5):
            await group.admin.create_topic("Orders", permission=permission)
        assert "Orders" in await group.admin.topics()


async def test_a_message_to_a_topic_that_is_only_read_is_not_said_to_lack_a_leader(
    tmp_path: Path,
) -> None:
    async with real_group(tmp_path) as group:
        await group.admin.create_topic("Orders", permission=4)
        async with Producer("p", client=group.client, timeout_s=0.3) as producer:
            for send in (producer.send, producer.send_oneway):
                with pytest.raises(Rejected, match="give it the permission to be written to"):
                    await send(Message("Orders", b"x"))


async def test_a_topic_is_removed_at_name_servers_beside_one_that_is_down() -> None:
    async with trio.open_nursery() as nursery:
        first, last, broker = ScriptedNames(), ScriptedNames(), ScriptedBroker()
        for peer in (first, last, broker):
            await start(nursery, peer)
        for names in (first, last):
            names.set_cluster(ClusterInfo({"a": BrokerData("C", "a", {0: broker.address})}))
            names.answers[RequestCode.DELETE_TOPIC_IN_NAMESRV] = lambda _, command: command.reply()
        broker.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = lambda _, command: command.reply()
        async with Admin(nameservers=[first.address, "127.0.0.1:1", last.address]) as admin:
            with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1 "):
                await admin.delete_topic("Orders")
        assert last.asked(RequestCode.DELETE_TOPIC_IN_NAMESRV)
        nursery.cancel_scope.cancel()
