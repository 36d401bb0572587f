"""Which processes of a local cluster lead their groups and answer."""

from dledger_mq import requests
from dledger_mq.admin import Admin
from dledger_mq.client import Client
from dledger_mq.group_directory import ClusterPlan, NodePlan
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

# A process of this machine answers in milliseconds; a frozen one never does.
_ANSWER_SECONDS = 1.0


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
