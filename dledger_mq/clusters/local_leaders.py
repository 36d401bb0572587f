"""Finds the leaders of a local cluster that answer, and its members that do not vote yet."""

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

# How long the start of a group waits for members in doubt. A new member votes and counts within a
# second after the election; one that lost its data may have much to copy.
DOUBT_S: Final = 10.0


async def serving_leaders(client: Client, admin: Admin, plan: ClusterPlan) -> dict[str, NodePlan]:
    """Return the leader of each group that answers now, by the group. Raises MessagingError."""
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
    """Return the members that answer but neither vote nor count yet, by the name of the group.

    A member of a new group that starts after the others have begun to elect is in doubt until it
    holds an entry of their leader. Until then a group of three that loses its leader has no quorum.
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
    """Ask nodes for their figures, all at once; None for a node that does not answer."""
    replies = await client.request_all(
        [(node.client_address, requests.runtime_info()) for node in nodes], _ANSWER_S
    )
    return [
        None if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS else reply
        for reply in replies
    ]
