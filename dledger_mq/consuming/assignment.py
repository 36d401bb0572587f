"""A member's share of the queues of its group."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from dledger_mq.connection import requests
from dledger_mq.connection.client import Client
from dledger_mq.connection.topic_route import ClientRoute
from remoting.bodies.consumer_group import decode_consumer_list
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.queue_shares import allocate_averagely
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Leaders answer from memory. One that takes longer may be frozen: ask a name server for another.
MEMBERS_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Share:
    """The queues of a topic that a member reads.

    Attributes:
        all_queues: every readable queue of the topic.
        members: the ids of the group's members; empty for a consumer that shares with no other.
    """

    queues: Collection[MessageQueue]
    all_queues: Collection[MessageQueue]
    members: Collection[str] = ()


async def whole_topic(client: Client, topic: str) -> Share | None:
    """Return every readable queue of a topic, or None while it does not exist. Raises: see
    `Routes.find`.
    """
    route = await _route(client, topic)
    return None if route is None else Share(route.read_queues, route.read_queues)


async def own_share(client: Client, group: str, topic: str) -> Share | None:
    """Return the queues of a topic that this client should read, or None if that is unknown now.

    A broker that has just become the leader does not know this client. The client registers with
    it, and asks again; its first answer would take every queue away from all members. Raises: see
    `Routes.find`.
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
            queues = allocate_averagely(client.client_id, route.read_queues, members)
            return Share(queues, route.read_queues, members)
    await client.routes.refresh(topic)  # the leader may be another by now
    return None


async def _route(client: Client, topic: str) -> ClientRoute | None:
    """Return the route, which is asked for when it may have changed; None if it is provisional."""
    route = client.routes.known(topic)
    if route is None or not route.masters or route.provisional:
        route = await client.routes.refresh(topic)
    return None if route.provisional else route


async def _members(client: Client, address: str, group: str) -> list[str] | None:
    """Return the ids of the group's members that one broker knows; None if it does not answer."""
    try:
        reply = await client.remoting.request(
            address, requests.consumer_list(group), MEMBERS_TIMEOUT_S
        )
        if reply.code == ResponseCode.SUCCESS:
            return decode_consumer_list(reply.body)
        if reply.code == ResponseCode.SYSTEM_ERROR:
            # RocketMQ's answer for a group it has never heard of.
            return []
        _log.info("%s does not tell the members of %s: code %d", address, group, reply.code)
    except RemotingError as error:
        _log.info("%s does not tell the members of %s: %s", address, group, error)
    return None
