"""Asking the brokers for the members of a group, and computing one's own share of its queues."""

import logging

from dledger_mq import requests
from dledger_mq.client import Client
from dledger_mq.rebalance import allocate_averagely
from dledger_mq.topic_route import ClientRoute
from remoting.bodies.consumer_group import decode_consumer_list
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)


async def all_queues(client: Client, topic: str) -> list[MessageQueue] | None:
    """Every readable queue of a topic, or None while it does not exist.

    Raises:
        RouteNotFound, NameServersUnreachable, RequestRefused: its route is not known now.
    """
    route = await _route(client, topic)
    return None if route is None else list(route.read_queues)


async def own_share(client: Client, group: str, topic: str) -> list[MessageQueue] | None:
    """Return the queues of a topic that this client should read, or None if that is unknown now.

    A broker that has just become the leader does not know this client. The client registers with
    it, and asks again; its first answer would take every queue away from all members.

    Args:
        client: the member.
        group: the consumer group.
        topic: the topic.

    Raises:
        RouteNotFound, NameServersUnreachable, RequestRefused: its route is not known now.
    """
    route = await _route(client, topic)
    if route is None:
        return None
    for address in dict.fromkeys(route.masters.values()):
        members = await _members(client, address, group)
        if members is not None and client.client_id not in members:
            await client.send_heartbeats([address])
            members = await _members(client, address, group)
        if members is not None and client.client_id in members:
            return allocate_averagely(client.client_id, route.read_queues, members)
    return None


async def _route(client: Client, topic: str) -> ClientRoute | None:
    """The route, asked for when it may have changed; None for one that is only provisional."""
    route = client.routes.known(topic)
    if route is None or not route.masters or route.provisional:
        route = await client.routes.refresh(topic)
    return None if route.provisional else route


async def _members(client: Client, address: str, group: str) -> list[str] | None:
    """The ids of a group's members as one broker knows them; None when it does not tell."""
    try:
        reply = await client.remoting.request(address, requests.consumer_list(group))
        if reply.code == ResponseCode.SUCCESS:
            return decode_consumer_list(reply.body)
        if reply.code == ResponseCode.SYSTEM_ERROR:
            # RocketMQ's answer for a group it has never heard of.
            return []
        _log.info("%s does not tell the members of %s: code %d", address, group, reply.code)
    except RemotingError as error:
        _log.info("%s does not tell the members of %s: %s", address, group, error)
    return None
