"""Which processes of a local cluster lead their groups and answer, and which do not count yet."""

from collections.abc import Sequence
from typing import Final

from dledger_mq.admin.admin import Admin
from dledger_mq.clusters.group_directory import ClusterPlan, NodePlan
from dledger_mq.connection import requests
from dledger_mq.connection.client import Client
from remoting.bodies.table import decode_table
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# A process of this machine answers in milliseconds; a frozen one never does.
_ANSWER_S: Final = 1.0

# How long the start of a group waits for members that do not count yet. A new one counts within a
# second of its leader; one that lost its data may have much to copy.
DOUBT_S: Final = 10.0


async def serving_leaders(client: Client, admin: Admin, plan: ClusterPlan) -> dict[str, NodePlan]:
    """The leader of each group, by the group's name, if it answers a request now.

    Args:
        client: an open client of the cluster's name server.
        admin: an administrator that shares it.
        plan: the cluster; nodes that are not in it are passed over.

    Raises:
        MessagingError: no name server answers.
    """
    nodes = {node.client_address: node for node in plan.nodes}
    leaders: dict[str, NodePlan] = {}
    for broker in await admin.brokers():
        node = nodes.get(broker.leader or "")
        if node is None:
            continue
        (answer,) = await _answers(client, [node])
        if answer is not None:
            leaders[broker.broker_name] = node
    return leaders


async def members_in_doubt(client: Client, plan: ClusterPlan) -> dict[str, list[str]]:
    """The members of each group, by the group's name, that answer but neither vote nor count yet.

    A member of a new group that starts after the others have begun to elect is in doubt until it
    holds an entry of their leader. Until then the loss of the leader leaves no quorum.

    Args:
        client: an open client of the cluster's name server.
        plan: the cluster.
    """
    answers = await _answers(client, plan.nodes)
    in_doubt = {
        node
        for node, answer in zip(plan.nodes, answers, strict=True)
        if answer is not None and decode_table(answer.body).get("dledgerProven") == "false"
    }
    return {
        group.name: [node.name for node in group.nodes if node in in_doubt]
        for group in plan.groups
        if not in_doubt.isdisjoint(group.nodes)
    }


async def _answers(client: Client, nodes: Sequence[NodePlan]) -> list[Command | None]:
    """What these nodes tell of themselves, all asked at once; None for one that does not."""
    replies = await client.request_all(
        [(node.client_address, requests.runtime_info()) for node in nodes], _ANSWER_S
    )
    return [
        None if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS else reply
        for reply in replies
    ]
