"""A topic's route in the form that producers and consumers need."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.order_conf import read_order_conf
from remoting.bodies.route import TopicRoute
from remoting.bodies.topic_config import PERMISSION_READ, PERMISSION_WRITE

# The queues of a topic that a broker makes at the first message: RocketMQ's defaultTopicQueueNums.
DEFAULT_QUEUE_COUNT: Final = 4

# More queues than this on one broker are ignored: each queue costs a consumer a task. RocketMQ's
# tools make topics of 4 to 16 queues.
MAX_QUEUES_PER_BROKER: Final = 4096


@dataclass(frozen=True, slots=True)
class ClientRoute:
    """Where the messages of one topic are sent to and read from.

    Attributes:
        write_queues: queues to send to, in their order; only those of brokers with a master, unless
            an order configuration fixes them.
        read_queues: queues to read, in their order, with or without a master now.
        masters: the address of the master, by broker name.
        provisional: the topic does not exist; the queues are those that it would get.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    masters: Mapping[str, str]
    provisional: bool = False


def why_not_writable(route: ClientRoute | None) -> str:
    """Return why a route has no `write_queues`, for an error."""
    if route is not None and route.masters:
        return "no queue of the topic takes messages: give it the permission to be written to"
    return "no leader is known for the topic"


def client_route(topic: str, route: TopicRoute, *, provisional: bool = False) -> ClientRoute:
    """Convert a name server's answer: the route of `topic`, or (provisional) of
    `TEMPLATE_TOPIC`.

    Queues without the permission are left out here, as in RocketMQ's client, since brokers do not
    check it. Raises BodyMalformed: the order configuration cannot be read.
    """
    masters = {
        broker.broker_name: broker.leader for broker in route.brokers if broker.leader is not None
    }
    most = DEFAULT_QUEUE_COUNT if provisional else MAX_QUEUES_PER_BROKER
    write_queues: set[MessageQueue] = set()
    read_queues: set[MessageQueue] = set()
    for queue in route.queues:
        name = queue.broker_name
        if queue.permission & PERMISSION_WRITE and name in masters:
            count = min(queue.write_queue_count, most)
            write_queues.update(MessageQueue(topic, name, number) for number in range(count))
        if queue.permission & PERMISSION_READ:
            count = min(queue.read_queue_count, most)
            read_queues.update(MessageQueue(topic, name, number) for number in range(count))
    if route.order_topic_conf and not provisional:
        # In the written order: a key finds its queue by the place in this list.
        fixed = read_order_conf(route.order_topic_conf).items()
        numbered = [MessageQueue(topic, name, at) for name, count in fixed for at in range(count)]
    else:
        numbered = sorted(write_queues)
    return ClientRoute(
        topic,
        tuple(numbered),
        tuple(sorted(read_queues)),
        masters,
        provisional,
    )
