"""A topic's route in the shape a producer or consumer needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.order_conf import read_order_conf
from remoting.bodies.route import TopicRoute
from remoting.bodies.topic_config import PERMISSION_READ, PERMISSION_WRITE

# Whose queues a topic that does not exist yet borrows: brokers make the topic at the first message
# to it. Source: RocketMQ's auto-create topic.
AUTO_CREATE_TOPIC: Final = "TBW102"

# How many queues a topic made that way gets (RocketMQ's defaultTopicQueueNums).
DEFAULT_QUEUE_COUNT: Final = 4

# A route that announces more queues than this on one broker is cut: each queue costs a consumer a
# task. RocketMQ's tools make topics of 4 to 16.
MAX_QUEUES_PER_BROKER: Final = 4096


@dataclass(frozen=True, slots=True)
class ClientRoute:
    """Where the messages of one topic go to and come from.

    Attributes:
        topic: the topic.
        write_queues: queues to send to, in their order; only those of brokers with a master, unless
            an order configuration fixes them.
        read_queues: queues to read, in their order, with or without a master now.
        masters: by broker name, where its master is reached without a detour.
        provisional: the topic does not exist; the queues are those it would get when made.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    masters: Mapping[str, str]
    provisional: bool = False


def client_route(topic: str, route: TopicRoute, *, provisional: bool = False) -> ClientRoute:
    """Read a name server's answer.

    Queues whose permission forbids it are left out, on the client's side as in RocketMQ, since
    brokers do not check it.

    Args:
        topic: the topic that was asked for.
        route: the answer, of the topic itself or (provisional) of `AUTO_CREATE_TOPIC`.
        provisional: the answer is that of `AUTO_CREATE_TOPIC`.

    Raises:
        BodyMalformed: its order configuration cannot be read.
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
        # As it is written: the queue of a key is found by its place in this list.
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
