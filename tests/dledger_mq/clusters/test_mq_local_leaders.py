"""Which processes of a local cluster do not count yet."""

import os
import shutil
from pathlib import Path

import pytest
import trio

from dledger_mq import Client, Message, Producer
from dledger_mq.clusters.group_directory import ClusterPlan, GroupPlan, NodePlan
from dledger_mq.clusters.local_leaders import members_in_doubt
from dledger_mq.testing import cluster
from remoting.bodies.table import encode_table
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.dledger_mq.scripted_cluster import Peer, ScriptedNames, start

ENOUGH_S = 60


def telling(figures: dict[str, str]) -> Peer:
    """A broker that answers with these figures; with a refusal if there are none."""

    def answer(_connection: Connection, command: Command) -> Command:
        if not figures:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="not now")
        return command.reply(body=encode_table(figures))

    peer = Peer()
    peer.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = answer
    return peer


async def test_only_a_member_that_says_so_is_in_doubt() -> None:
    brokers = {
        "n0": telling({"dledgerProven": "true"}),
        "n1": telling({"dledgerProven": "false"}),
        "n2": telling({}),
        "n3": telling({"dledgerRole": "FOLLOWER"}),  # of an earlier version
    }
    async with trio.open_nursery() as nursery:
        names = await start(nursery, ScriptedNames())
        places = {name: await start(nursery, peer) for name, peer in brokers.items()}
        nodes = [NodePlan(name, "", address) for name, address in places.items()]
        groups = (
            GroupPlan("a", (nodes[0], nodes[1])),
            GroupPlan("b", (nodes[2], nodes[3], NodePlan("n4", "", "127.0.0.1:1"))),
        )
        async with Client([names]) as client:
            plan = ClusterPlan("DefaultCluster", names, groups)
            assert await members_in_doubt(client, plan) == {"a": ["n1"]}
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_cluster_that_begins_can_lose_any_member_though_one_had_lost_its_data(
    tmp_path: Path,
) -> None:
    place = tmp_path / "cluster"
    with trio.fail_after(ENOUGH_S):
        async with (
            cluster(directory=place) as group,
            Producer("w", nameservers=group.nameservers) as producer,
        ):
            await producer.send(Message("T", b"one"), timeout_s=20)
        shutil.rmtree(place / "n2")
        async with (
            cluster(directory=place) as group,
            Producer("w", nameservers=group.nameservers) as producer,
        ):
            assert "unproven" not in os.listdir(place / "n2" / "dledger-n2")
            await group.kill()
            await producer.send(Message("T", b"two"), timeout_s=20)
