"""Reads and checks a client's pull (11, 361)."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.filters.changes import SQL92
from broker.limits import MAX_PULL_MESSAGES
from broker.pulls.message_filter import ALL_MESSAGES, MessageFilter, sql_filter, tag_filter
from broker.topics.names import check_group_name
from remoting.bodies.heartbeat import SubscriptionData
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Bits of a pull's system flag.
COMMIT_OFFSET_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
CLASS_FILTER_FLAG: Final = 8

# The terms of a consumer's pulls: more are read again.
_REMEMBERED_TERMS: Final = 4096

_TAG_EXPRESSIONS: Final = frozenset({"", "TAG", "null"})


@dataclass(slots=True)
class PullRequest:
    """A checked pull.

    Attributes:
        offset: the first message wanted.
        commit_offset: the group's progress, if the pull carries it.
        hold_s: how long to wait for a message; 0 for not at all.
        wanted: all messages until the subscription in the group's heartbeats is known.
        has_subscription: whether the pull itself has the subscription.
        is_sql: whether the subscription is an SQL92 condition.
        subscription_version: of the client's subscription.
        key: group, topic and queue.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    commit_offset: int | None
    hold_s: float
    wanted: MessageFilter
    has_subscription: bool
    is_sql: bool
    subscription_version: int
    key: tuple[str, str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.group, self.topic, self.queue_id


def read_pull_request(command: Command, max_hold_s: float) -> PullRequest:
    """Read and check a pull.

    Raises RequestRefused: (1) a filter of another kind, (23) its tags or its condition cannot be
    read, (29) a bad group name.
    """
    terms = _terms(*map(command.fields.get, _TERM_FIELDS))
    flag, integer = terms.flag, command.integer
    has_subscription = bool(flag & SUBSCRIPTION_FLAG)
    commit_offset = integer("commitOffset", -1) if flag & COMMIT_OFFSET_FLAG else -1
    hold_ms = integer("suspendTimeoutMillis", 0) if flag & SUSPEND_FLAG else 0
    if has_subscription:
        if flag & CLASS_FILTER_FLAG:
            raise RequestRefused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "class filters are gone: filter by tag"
            )
        expression = command.fields.get("subscription", "")
        wanted = sql_filter(expression) if terms.is_sql else tag_filter(expression)
    else:
        wanted = ALL_MESSAGES
    return PullRequest(
        terms.group,
        terms.topic,
        terms.queue_id,
        integer("queueOffset"),
        terms.max_messages,
        commit_offset if commit_offset >= 0 else None,
        min(max(hold_ms, 0) / 1000, max_hold_s),
        wanted,
        has_subscription,
        terms.is_sql,
        terms.subscription_version,
    )


class _Terms(NamedTuple):
    """The checked fields that a consumer's pulls of a queue have in common."""

    group: str
    topic: str
    queue_id: int
    max_messages: int
    flag: int
    is_sql: bool
    subscription_version: int


_TERM_FIELDS: Final = (
    *("consumerGroup", "topic", "queueId", "maxMsgNums", "sysFlag"),
    *("expressionType", "subVersion"),
)


@lru_cache(maxsize=_REMEMBERED_TERMS)
def _terms(*texts: str | None) -> _Terms:
    """Read `_TERM_FIELDS`, which are short: a longer one is refused."""
    known = zip(_TERM_FIELDS, texts, strict=True)
    command = Command(0, {name: text for name, text in known if text is not None})
    flag = command.int32("sysFlag")
    is_sql = _is_sql(command.fields.get("expressionType", ""))
    group, topic = command.name("consumerGroup"), command.name("topic")
    check_group_name(group)  # it is kept while the pull waits
    return _Terms(
        group,
        topic,
        command.int32("queueId"),
        max(1, min(command.int32("maxMsgNums"), MAX_PULL_MESSAGES)),
        flag,
        is_sql,
        command.integer("subVersion", 0),
    )


def filter_of(subscription: SubscriptionData) -> MessageFilter:
    """Return the filter of a heartbeat's subscription, by its expression alone."""
    if _is_sql(subscription.expression_type):
        return sql_filter(subscription.expression)
    return tag_filter(subscription.expression)


def _is_sql(expression_type: str) -> bool:
    """Raise RequestRefused (1) for anything but tags and SQL92, in RocketMQ's words."""
    if expression_type == SQL92:
        return True
    if expression_type not in _TAG_EXPRESSIONS:
        raise RequestRefused.failed(
            f"The broker does not support consumer to filter message by {expression_type:.20}: "
            "use TAG or SQL92"
        )
    return False
