"""Answers QueryRoute and QueryAssignment.

Every broker of a route has the addresses by which the client has reached the proxy: the client
sends everything there. Source: RocketMQ's proxy, RouteActivity and ClusterTopicRouteService.
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final

from dledger_mq.connection.topic_route import ClientRoute
from proxy.access import EITHER, SUB, Access, group_need, topic_need
from proxy.brokers.brokers import Brokers
from proxy.brokers.groups import Groups
from proxy.brokers.topics import Topics
from proxy.caller import Caller
from proxy.names import group_name, topic_name
from proxy.statuses import OK, Refused
from proxy.wire.messages_pb2 import (
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)

# An access point has one name, or a few proxies; each queue of an answer repeats them.
_MAX_ADDRESSES: Final = 32
_MAX_HOST_CHARACTERS: Final = 255

# The namespace of a topic means nothing here, and each queue of an answer repeats it.
_MAX_NAMESPACE_CHARACTERS: Final = 255

_ANY_QUEUE: Final = -1


class RouteAnswers:
    """Answers where topics are.

    Args:
        brokers: knows the routes.
        topics: knows the types of messages.
        groups: knows which groups consume in order.
        access: asked whether a client may know.
    """

    def __init__(self, brokers: Brokers, topics: Topics, groups: Groups, access: Access) -> None:
        self._brokers = brokers
        self._access = access
        self._topics = topics
        self._groups = groups

    async def route(self, caller: Caller, request: QueryRouteRequest) -> QueryRouteResponse:
        """Tell the queues of a topic. Raises Refused (40001, 40002, 40402)."""
        topic = _topic(request.topic)
        endpoints = _endpoints(request.endpoints)
        route = await self._brokers.route(topic)
        await self._access.require(caller, topic, [topic_need(topic, EITHER)])
        types = await self._topics.types(topic)
        queues = list(_queues(route, request.topic, endpoints, types))
        if not queues:
            raise Refused(Code.TOPIC_NOT_FOUND, f"topic {topic} has no queue")
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def assignment(
        self, caller: Caller, request: QueryAssignmentRequest
    ) -> QueryAssignmentResponse:
        """Tell from which queues a member of a group receives: all members from all of them.

        Raises Refused (40001, 40002, 40003, 40300, 40402).
        """
        topic, group = _topic(request.topic), group_name(request.group)
        endpoints = _endpoints(request.endpoints)
        route = await self._brokers.route(topic)
        await self._access.require(caller, topic, [topic_need(topic, SUB), group_need(group)])
        types = await self._topics.types(topic)
        rules = await self._groups.rules(group, topic)
        readable: Iterable[tuple[str, int]] = [
            (queue.broker_name, queue.queue_id) for queue in route.read_queues
        ]
        if not rules.in_order or MessageType.LITE in types:
            # A receive takes from any queue of the broker.
            names = dict.fromkeys(broker_name for broker_name, _queue_id in readable)
            readable = [(broker_name, _ANY_QUEUE) for broker_name in names]
        assignments = [
            Assignment(
                message_queue=MessageQueue(
                    topic=request.topic,
                    id=queue_id,
                    permission=Permission.READ,
                    broker=Broker(name=broker_name, id=0, endpoints=endpoints),
                    accept_message_types=types,
                )
            )
            for broker_name, queue_id in readable
        ]
        if not assignments:
            raise Refused(Code.FORBIDDEN, f"topic {topic} has no queue that may be read")
        return QueryAssignmentResponse(status=OK, assignments=assignments)


def _queues(
    route: ClientRoute, topic: Resource, endpoints: Endpoints, types: tuple[MessageType, ...]
) -> Iterator[MessageQueue]:
    """Yield the queues of each broker, those that are only read or only written first."""
    readable, writable = set(route.read_queues), set(route.write_queues)
    everything = sorted(
        readable | writable,
        key=lambda queue: (
            queue.broker_name,
            queue in readable and queue in writable,
            queue.queue_id,
        ),
    )
    for queue in everything:
        permission = Permission.READ_WRITE
        if queue not in writable:
            permission = Permission.READ
        elif queue not in readable:
            permission = Permission.WRITE
        yield MessageQueue(
            topic=topic,
            id=queue.queue_id,
            permission=permission,
            broker=Broker(name=queue.broker_name, id=0, endpoints=endpoints),
            accept_message_types=types,
        )


def _topic(given: Resource) -> str:
    """Return the name of a topic that an answer repeats. Raises Refused (40002)."""
    name = topic_name(given)
    count = len(given.resource_namespace)
    if count > _MAX_NAMESPACE_CHARACTERS:
        raise Refused(
            Code.ILLEGAL_TOPIC,
            f"a namespace of {count} characters: at most {_MAX_NAMESPACE_CHARACTERS}",
        )
    return name


def _endpoints(given: Endpoints) -> Endpoints:
    """Return the addresses that a client has for the proxy. Raises Refused (40001)."""
    addresses = given.addresses
    if not 0 < len(addresses) <= _MAX_ADDRESSES:
        raise Refused(
            Code.ILLEGAL_ACCESS_POINT,
            f"endpoints with {len(addresses)} addresses: send 1 to {_MAX_ADDRESSES}",
        )
    for address in addresses:
        is_host = 0 < len(address.host) <= _MAX_HOST_CHARACTERS and address.host.isprintable()
        if not is_host or not 0 < address.port < 65536:
            raise Refused(
                Code.ILLEGAL_ACCESS_POINT,
                f"{address.host!r:.100} port {address.port} is no address of an endpoint",
            )
    scheme = given.scheme
    if scheme == AddressScheme.ADDRESS_SCHEME_UNSPECIFIED:
        scheme = _scheme(addresses[0].host)
    return Endpoints(scheme=scheme, addresses=addresses)


def _scheme(host: str) -> AddressScheme:
    try:
        version = ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6
