"""Reads requests about lite topics: pops (200070), subscriptions (200071)."""

from enum import Enum
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.limits import MAX_HOLD_S
from broker.lite.limits import (
    MAX_BODY_BYTES,
    MAX_MESSAGES,
    MAX_NAMED,
    MAX_SUBSCRIPTIONS_IN_REQUEST,
)
from broker.lite.subscriptions import ClientKey
from broker.pop.limits import MAX_ATTEMPT_CHARACTERS
from broker.pop.request import read_invisible_ms
from broker.topics.names import check_group_name
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import LARGE


class LiteRequest(NamedTuple):
    """A checked pop of a client. `hold_s`: how long to wait for a message; 0 for not at all."""

    group: str
    client_id: str
    parent: str
    max_messages: int
    invisible_ms: int
    hold_s: float
    attempt_id: str

    @property
    def key(self) -> ClientKey:
        return self.group, self.client_id


def read_pop(command: Command) -> LiteRequest:
    """Read a pop. Raises FieldMissing, RequestRefused (29)."""
    most = command.int32("maxMsgNum")
    if not 1 <= most <= MAX_MESSAGES:
        raise RequestRefused.invalid(f"maxMsgNum {most}: pop 1 to {MAX_MESSAGES} messages")
    group = command.name("consumerGroup")
    check_group_name(group)
    attempt_id = command.fields.get("attemptId", "")
    if len(attempt_id) > MAX_ATTEMPT_CHARACTERS:
        raise RequestRefused.invalid(
            f"attemptId of {len(attempt_id)} characters: at most {MAX_ATTEMPT_CHARACTERS}"
        )
    return LiteRequest(
        group,
        command.name("clientId"),
        command.name("topic"),
        most,
        read_invisible_ms(command),
        min(max(command.integer("pollTime", 0), 0) / 1000, MAX_HOLD_S),
        attempt_id,
    )


class Change(Enum):
    """What a client does with its subscriptions."""

    ADD = "PARTIAL_ADD"
    REMOVE = "PARTIAL_REMOVE"
    SET = "COMPLETE_ADD"
    CLEAR = "COMPLETE_REMOVE"


class Start(Enum):
    """Where a group goes on in a lite topic that a client adds."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL = "TAIL_N"
    TIME = "TIMESTAMP"


_POLICY_MIN: Final = 1
_POLICY_MAX: Final = 2


class StartAt(NamedTuple):
    """Where a group goes on: see `offset`."""

    start: Start
    value: int

    def offset(self, first: int, end: int) -> int | None:
        """Return the offset, given the first one and that of the next message; None if the group
        stays where it is. As in RocketMQ, a time changes nothing.
        """
        if self.start is Start.POLICY:
            return {_POLICY_MIN: first, _POLICY_MAX: end}.get(self.value)
        if self.start is Start.TAIL:
            return max(first, end - self.value)
        return min(max(self.value, first), end) if self.start is Start.OFFSET else None


class SubscriptionChange(NamedTuple):
    """One change of a client's subscriptions."""

    change: Change
    group: str
    client_id: str
    parent: str
    names: tuple[str, ...]
    start: StartAt | None
    version: int


# Java's clients write the name, and others may write the number.
_CHANGES: Final = {
    text: one for number, one in enumerate(Change) for text in (one.value, str(number))
}
_STARTS: Final = {
    text: one for number, one in enumerate(Start) for text in (one.value, str(number))
}


def read_changes(command: Command) -> list[SubscriptionChange]:
    """Read changes of subscriptions. Raises BodyMalformed, RequestRefused (604)."""
    body = JsonObject.parse("lite subscriptions", command.body, MAX_BODY_BYTES, LARGE)
    found = body.objects("subscriptionSet", MAX_SUBSCRIPTIONS_IN_REQUEST)
    if not found:
        raise _refused("subscriptionSet is empty")
    changes = [_change(one) for one in found]
    named = sum([len(one.names) for one in changes])
    if named > MAX_NAMED:
        raise _refused(f"{named} lite topics: at most {MAX_NAMED} in one request")
    return changes


def _change(value: JsonObject) -> SubscriptionChange:
    action = value.text("action")
    change = _CHANGES.get(action)
    if change is None:
        raise _refused(f"action {action!r:.40}: give " + ", ".join(one.value for one in Change))
    group = value.name("group")
    check_group_name(group)
    start = None
    if value.members.get("offsetOption") is not None:
        option = value.object("offsetOption")
        kind = _STARTS.get(option.text("type", ""))
        number = option.integer("value", 0)
        if kind is None or number < 0:
            raise _refused(
                "offsetOption: give a type, "
                + ", ".join(one.value for one in Start)
                + ", and a value from 0 on"
            )
        start = StartAt(kind, number)
    return SubscriptionChange(
        change,
        group,
        value.name("clientId"),
        value.name("topic"),
        tuple(dict.fromkeys(value.texts("liteTopicSet"))),
        start,
        value.integer("version", 0),
    )


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.ILLEGAL_OPERATION, remark)
