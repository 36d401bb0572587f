"""The settings that a client sends, and those it gets: its own with what servers decide.

Source: RocketMQ's proxy, GrpcClientSettingsManager; the differences between clients are known from
their traffic.
"""

from typing import Final, NamedTuple

from proxy.brokers.groups import GroupRules, Groups
from proxy.messages.sent_message import MAX_BODY_BYTES
from proxy.names import group_name, topic_name
from proxy.statuses import OK, Refused
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    FilterType,
    Language,
    RetryPolicy,
    Settings,
    TelemetryCommand,
)
from remoting.wire.field_values import read_natural

# What a producer does after a failed send: RocketMQ's policy.
_PRODUCER_ATTEMPTS: Final = 3
_PRODUCER_FIRST_MS: Final = 10
_PRODUCER_MOST_MS: Final = 1000
_PRODUCER_MULTIPLIER: Final = 2

# RocketMQ's receive_batch_size and long_polling_timeout.
RECEIVE_BATCH: Final = 32
LONG_POLLING_S: Final = 20

# RIP-83's limit.
LITE_TOPIC_CHARACTERS: Final = 64

# For the client in JavaScript, which knows no list of pauses.
_EXPONENTIAL_FIRST_MS: Final = 1000
_EXPONENTIAL_MOST_MS: Final = 7_200_000

# It reads the seconds of a pause, and waits for so many milliseconds: all repeats of a message
# would come at once. So it gets a thousand times as much, until this version, the newest one.
_SECONDS_FOR_MS: Final = (1, 0, 8)


# Topics of one client's settings. A client asks for the route of each every 30 s.
MAX_TOPICS: Final = 1024

# Settings go back to the client with all that it wrote. So many topics have some 130 KiB, and their
# expressions a few characters each.
MAX_SETTINGS_BYTES: Final = 512 * 1024

# More would be looked at for long; versions have three numbers.
_MAX_VERSION_CHARACTERS: Final = 64

# The expressions of one client that are kept, for operators: those of most have a few characters.
_MAX_EXPRESSIONS: Final = 4096


class Subscribed(NamedTuple):
    """A topic that a consumer subscribes to.

    Attributes:
        topic: its name.
        expression: of tags, or a condition; cut if a client's take too much.
        is_sql: whether it is a condition.
    """

    topic: str
    expression: str
    is_sql: bool


class Described(NamedTuple):
    """What settings say of a client."""

    kind: ClientType
    group: str
    topics: frozenset[str]
    subscriptions: tuple[Subscribed, ...] = ()


def describe(settings: Settings) -> Described:
    """Read and check a client's settings.

    Raises Refused: they name what may not be used, or (42900) are too large.
    """
    kind = settings.client_type
    size = settings.ByteSize()
    if size > MAX_SETTINGS_BYTES:
        raise Refused(
            Code.TOO_MANY_REQUESTS, f"settings of {size} bytes: at most {MAX_SETTINGS_BYTES}"
        )
    count = max(len(settings.publishing.topics), len(settings.subscription.subscriptions))
    if count > MAX_TOPICS:
        raise Refused(Code.TOO_MANY_REQUESTS, f"settings with {count} topics: at most {MAX_TOPICS}")
    match settings.WhichOneof("pub_sub"):
        case "publishing":
            names = frozenset(topic_name(topic) for topic in settings.publishing.topics)
            return Described(kind, "", names)
        case "subscription":
            subscription = settings.subscription
            group = group_name(subscription.group)
            subscribed: list[Subscribed] = []
            room = _MAX_EXPRESSIONS
            for one in subscription.subscriptions:
                text = one.expression.expression[:room]
                room -= len(text)
                is_sql = one.expression.type == FilterType.SQL
                subscribed.append(Subscribed(topic_name(one.topic), text, is_sql))
            topics = frozenset(one.topic for one in subscribed)
            return Described(kind, group, topics, tuple(subscribed))
        case _:
            raise Refused(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "settings have neither publishing nor subscription in them",
            )


async def answer(settings: Settings, described: Described, groups: Groups) -> TelemetryCommand:
    """Return the settings that a client gets. Raises Refused."""
    given = Settings()
    given.CopyFrom(settings)
    given.metric.Clear()
    given.metric.on = False
    if settings.WhichOneof("pub_sub") == "publishing":
        given.publishing.max_body_size = MAX_BODY_BYTES
        given.publishing.validate_message_type = True
        policy = given.backoff_policy
        policy.Clear()
        policy.max_attempts = _PRODUCER_ATTEMPTS
        policy.exponential_backoff.initial.FromMilliseconds(_PRODUCER_FIRST_MS)
        policy.exponential_backoff.max.FromMilliseconds(_PRODUCER_MOST_MS)
        policy.exponential_backoff.multiplier = _PRODUCER_MULTIPLIER
    else:
        rules = await _rules(described, groups)
        given.backoff_policy.CopyFrom(_policy(rules, settings))
        subscription = given.subscription
        subscription.fifo = rules.in_order
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)
        if described.kind in (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER):
            subscription.lite_subscription_quota = rules.lite_quota
            subscription.max_lite_topic_size = LITE_TOPIC_CHARACTERS
    return TelemetryCommand(status=OK, settings=given)


async def _rules(described: Described, groups: Groups) -> GroupRules:
    """Return the rules of a client's group, from a broker that has one of its topics."""
    problem: Refused | None = None
    for topic in sorted(described.topics):
        try:
            return await groups.rules(described.group, topic)
        except Refused as refused:
            problem = refused
    if problem is not None and problem.code != Code.TOPIC_NOT_FOUND:
        raise problem
    return groups.unknown


def _policy(rules: GroupRules, settings: Settings) -> RetryPolicy:
    agent = settings.user_agent
    if agent.language != Language.NODE_JS:
        return rules.policy
    policy = RetryPolicy(max_attempts=rules.max_attempts)
    backoff = policy.exponential_backoff
    if rules.policy.HasField("exponential_backoff"):
        backoff.CopyFrom(rules.policy.exponential_backoff)
    else:
        backoff.initial.FromMilliseconds(_EXPONENTIAL_FIRST_MS)
        backoff.max.FromMilliseconds(_EXPONENTIAL_MOST_MS)
        backoff.multiplier = 2
    if _takes_seconds_for_milliseconds(agent.version):
        backoff.initial.FromSeconds(backoff.initial.ToMilliseconds())
        backoff.max.FromSeconds(backoff.max.ToMilliseconds())
    return policy


def _takes_seconds_for_milliseconds(version: str) -> bool:
    numbers = [read_natural(number) for number in version[:_MAX_VERSION_CHARACTERS].split(".")]
    known = tuple(number for number in numbers if number is not None)
    return len(known) == len(numbers) and known <= _SECONDS_FOR_MS
