"""How a consumer group is to be served: in order or not, how often, and with which pauses."""

from dataclasses import dataclass, replace
from typing import Final

from dledger_mq.connection import requests
from proxy.brokers.brokers import Brokers
from proxy.brokers.remembered import Remembered
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code, RetryPolicy
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import RequestCode
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import read_int64

# RocketMQ's retryMaxTimes.
_DEFAULT_RETRIES: Final = 16

# RocketMQ's pauses between deliveries, seconds: its 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min,
# 30 min, 1 h and 2 h.
_PAUSES_S: Final = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)

# RocketMQ's exponential policy where it leaves something out.
_INITIAL_MS: Final = 5_000
_MAX_MS: Final = 7_200_000
_MULTIPLIER: Final = 2

# The attribute of a group that says how many lite topics a client of it may have, RocketMQ's value
# without it, and what brokers take at most: see `broker.lite.limits`.
_LITE_QUOTA: Final = "lite.sub.client.quota"
_DEFAULT_LITE_QUOTA: Final = 2000
_MOST_LITE_QUOTA: Final = 10_000

# A policy in a group's configuration may have any numbers. Clients keep what they are told.
_MOST_PAUSES: Final = 64
_LONGEST_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How a group is served.

    Attributes:
        in_order: each queue's messages one after another.
        max_attempts: deliveries of a message before it is a dead letter.
        policy: the pauses between deliveries, and `max_attempts`, as clients read them.
        lite_quota: lite topics that one client may subscribe to.
    """

    in_order: bool
    max_attempts: int
    policy: RetryPolicy
    lite_quota: int = _DEFAULT_LITE_QUOTA


class Groups:
    """Knows the rules of groups.

    Attributes:
        unknown: the rules of a group that no broker knows.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.unknown: Final = _rules(False, _DEFAULT_RETRIES, None)
        self._brokers = brokers
        self._rules: Remembered[GroupRules] = Remembered()

    async def rules(self, group: str, topic: str) -> GroupRules:
        """Return the rules of a group, from a broker that has `topic`. Raises Refused."""
        return await self._rules.find(group, lambda: self._ask(group, topic))

    async def _ask(self, group: str, topic: str) -> GroupRules:
        asked = requests.command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)
        try:
            reply = await self._brokers.ask_any(None, topic, asked, "describe a group")
        except Refused as refused:
            if refused.code == Code.CONSUMER_GROUP_NOT_FOUND:
                return self.unknown  # its first receive makes it
            raise
        try:
            found = JsonObject.parse("group", reply.body)
            rules = _rules(
                found.boolean("consumeMessageOrderly"),
                found.int32("retryMaxTimes", _DEFAULT_RETRIES),
                found.object("groupRetryPolicy"),
            )
            quota = read_int64(found.object("attributes").text(_LITE_QUOTA, ""))
        except BodyMalformed as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from error
        if quota is None:
            return rules
        is_bounded = 0 <= quota <= _MOST_LITE_QUOTA
        return replace(rules, lite_quota=quota if is_bounded else _MOST_LITE_QUOTA)


def _rules(in_order: bool, retries: int, given: JsonObject | None) -> GroupRules:
    """Raises BodyMalformed."""
    policy = RetryPolicy(max_attempts=min(max(retries, 0) + 1, (1 << 31) - 1))
    if given is not None and given.text("type", "CUSTOMIZED") == "EXPONENTIAL":
        told = given.object("exponentialRetryPolicy")
        backoff = policy.exponential_backoff
        backoff.initial.FromMilliseconds(_bounded(told.integer("initial", _INITIAL_MS)))
        backoff.max.FromMilliseconds(_bounded(told.integer("max", _MAX_MS)))
        backoff.multiplier = min(max(told.integer("multiplier", _MULTIPLIER), 1), 100)
        return GroupRules(in_order, policy.max_attempts, policy)
    pauses_ms = [pause_s * 1000 for pause_s in _PAUSES_S]
    if given is not None:
        told_ms = given.object("customizedRetryPolicy").array("next")
        if 0 < len(told_ms) <= _MOST_PAUSES and all(type(one) is int for one in told_ms):
            pauses_ms = [_bounded(one) for one in told_ms if isinstance(one, int)]
    for pause_ms in pauses_ms:
        policy.customized_backoff.next.add().FromMilliseconds(pause_ms)
    return GroupRules(in_order, policy.max_attempts, policy)


def _bounded(milliseconds: int) -> int:
    return min(max(milliseconds, 0), _LONGEST_MS)
