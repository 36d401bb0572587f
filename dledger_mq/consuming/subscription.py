"""What a consumer subscribes to in a topic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_mq.argument_checks import kind_of
from dledger_mq.errors import InvalidMessage
from dledger_mq.message import check_topic
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.heartbeat import SubscriptionData
from remoting.message.tags import tags_code
from remoting.message.topic_names import RETRY_PREFIX

ALL: str = "*"

# RocketMQ's name for the type of expression that `Sql` is.
SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition on the properties of messages, which brokers evaluate: ``Sql("amount > 3")``.

    Attributes:
        condition: in RocketMQ's SQL92.
    """

    condition: str


def subscription(topic: str, expression: str | Sql = ALL, version: int = 0) -> SubscriptionData:
    """Make a subscription by tags joined by ``||``, ``*`` for all messages, or a condition.

    `version` is in milliseconds since 1970, and grows with each change of the group's
    subscriptions. Raises InvalidMessage: the topic's name is not legal, or the expression is no
    text.
    """
    check_topic(topic)
    text: object = expression.condition if isinstance(expression, Sql) else expression
    if not isinstance(text, str):
        raise InvalidMessage(
            topic, f"tags and conditions are texts, not {kind_of(text)}: use 'a || b'"
        )
    if isinstance(expression, Sql):
        return SubscriptionData(topic, expression.condition, SQL92, version=version)
    tags = [tag for tag in (part.strip() for part in expression.split("||")) if tag]
    if not tags or ALL in tags:
        return SubscriptionData(topic, ALL, version=version)
    return SubscriptionData(
        topic,
        " || ".join(tags),
        version=version,
        tags=tags,
        codes=[tags_code(tag) for tag in tags],
    )


def group_subscriptions(
    group: str,
    topics: str | Sequence[str] | Mapping[str, str | Sql],
    version: int,
    *,
    with_retries: bool = True,
) -> dict[str, SubscriptionData]:
    """Return the subscriptions of a group by topic, with its retry topic.

    Raises InvalidMessage: a name is not legal, or there is no topic.
    """
    wanted: Mapping[str, str | Sql] = {}
    if isinstance(topics, str):
        wanted = {topics: ALL}
    elif isinstance(topics, Mapping):
        wanted = topics
    elif isinstance(topics, Iterable):
        wanted = dict.fromkeys(topics, ALL)
    else:
        check_topic(topics)
    if not wanted:
        raise InvalidMessage("", "a consumer needs at least one topic")
    found = {topic: subscription(topic, tags, version) for topic, tags in wanted.items()}
    if with_retries:
        retry = RETRY_PREFIX + group
        found[retry] = subscription(retry, ALL, version)
    return found


def matches(wanted: SubscriptionData, message: ReceivedMessage) -> bool:
    """Return whether a message has one of the wanted tags.

    Brokers compare hashes only, and may send messages with other tags of the same hash. As in
    RocketMQ, the client compares the tags.
    """
    return not wanted.tags or message.tags in wanted.tags
