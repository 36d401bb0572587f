"""Which processes of a local cluster lead their groups and answer, and which do not count yet."""

from typing import Final

from dledger_mq import requests
from dledger_mq.admin import Admin
from dledger_mq.client import Client
from dledger_mq.group_directory import ClusterPlan, NodePlan
from remoting.bodies.table import decode_table
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# A process of this machine answers in milliseconds; a frozen one never does.
_ANSWER_SECONDS: Final = 1.0

# How long the start of a group waits for members that do not count yet. A new one counts within a
# second of its leader; one that lost its data may have much to copy.
DOUBT_SECONDS: Final = 10.0


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
        (reply,) = await client.request_all(
            [(node.client_address, requests.runtime_info())], _ANSWER_SECONDS
        )
        if not isinstance(reply, RemotingError) and reply.code == ResponseCode.SUCCESS:
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
    found: dict[str, list[str]] = {}
    for group in plan.groups:
        replies = await client.request_all(
            [(node.client_address, requests.runtime_info()) for node in group.nodes],
            _ANSWER_SECONDS,
        )
        for node, reply in zip(group.nodes, replies, strict=True):
            if not isinstance(reply, Command) or reply.code != ResponseCode.SUCCESS:
                continue
            if decode_table(reply.body).get("dledgerProven") == "false":
                found.setdefault(group.name, []).append(node.name)
    return found
