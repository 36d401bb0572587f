"""The queues of a topic that an order configuration fixes: "broker:count;broker:count".

With it producers see the same queues while a broker is away, so that a key keeps its queue: sends
to a queue of that broker fail. It is stored in the name servers (namespace ORDER_TOPIC_CONFIG) and
sent in routes. Source: RocketMQ's MQClientInstance.topicRouteData2TopicPublishInfo.
"""

from typing import Final

from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import read_natural

# The most queues of all brokers together: producers make a list of them. RocketMQ has no limit.
MAX_ORDER_QUEUES: Final = 16_384

MAX_BROKER_NAME_CHARACTERS: Final = 255


def read_order_conf(text: str) -> dict[str, int]:
    """Return the number of queues of each broker name, in the order of the text.

    Raises:
        BodyMalformed: it is no such text, or has more than 16384 queues.
    """
    counts: dict[str, int] = {}
    queues = 0
    for part in text.rstrip(";").split(";"):
        name, _, number = part.partition(":")
        is_name = name.isprintable() and 0 < len(name.strip()) <= MAX_BROKER_NAME_CHARACTERS
        count = read_natural(number)
        if not is_name or not count or name in counts:
            raise BodyMalformed(
                "order configuration",
                f"{part!r:.60} is no broker name with its number of queues, or a second one of "
                "the name: write broker:4;broker:4",
            )
        counts[name] = count
        queues += counts[name]
        if queues > MAX_ORDER_QUEUES:
            raise BodyMalformed("order configuration", f"more than {MAX_ORDER_QUEUES} queues")
    return counts
