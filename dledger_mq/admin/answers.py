"""Bodies of the brokers' answers to administrators, decoded."""

from dataclasses import dataclass

from dledger.renamed import renamed_fields
from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue, decode_queue_keyed
from remoting.wire.loose_json import LARGE, JsonValue, parse_json


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has consumed a queue.

    Attributes:
        queue: the queue.
        broker_offset: the queue offset of the next message to be stored.
        consumer_offset: the next queue offset that the group will consume; 0 if it never committed.
        pulled_offset: the next queue offset that the group will pull, as far as the broker knows.
        last_timestamp: when the last message that the group has consumed was stored, in
            milliseconds since 1970; 0 if there is none.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pulled_offset: int
    last_timestamp: int

    @property
    def lag(self) -> int:
        """The number of messages that the group has not consumed."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class ConsumerConnection:
    """A member of a group, and its connection.

    Attributes:
        client_id: its id.
        address: the address it connects from.
        language: of its client.
        version: of its client, as RocketMQ numbers them.
    """

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class SubscribedAlike:
    """Members of a group with equal subscriptions, while other members have different ones.

    Attributes:
        client_ids: some of these members.
        members: how many there are.
        model: CLUSTERING or BROADCASTING.
        subscriptions: the tags or the condition, by topic.
    """

    client_ids: tuple[str, ...]
    members: int
    model: str
    subscriptions: dict[str, str]


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """The connected members of a group.

    Attributes:
        consumers: the members; one that is connected to several brokers is listed once.
        model: CLUSTERING or BROADCASTING.
        consume_from: where members begin without a committed offset.
        subscriptions: the tags or the condition, by topic; of one member, where members differ.
        different: empty when all members have equal subscriptions. Else messages are missed: each
            member gets its share of the queues, whatever it subscribes to.
    """

    consumers: tuple[ConsumerConnection, ...]
    model: str
    consume_from: str
    subscriptions: dict[str, str]
    different: tuple[SubscribedAlike, ...] = ()


@renamed_fields(waiting_milliseconds="waiting_ms")
@dataclass(frozen=True, slots=True)
class TimeSpan:
    """When the messages of a queue were stored, in milliseconds since 1970; 0 for none.

    Attributes:
        queue: the queue.
        first_timestamp: the first message it holds.
        last_timestamp: the last one.
        consumed_timestamp: the last one that the group has consumed.
        waiting_ms: how long the next message of the group has waited.
    """

    queue: MessageQueue
    first_timestamp: int
    last_timestamp: int
    consumed_timestamp: int
    waiting_ms: int


@renamed_fields(milliseconds="took_ms")
@dataclass(frozen=True, slots=True)
class DirectResult:
    """How a member's listener handled a message that an administrator chose.

    Attributes:
        result: RocketMQ's name: CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION and others.
        remark: the error, or an empty text.
        took_ms: how long the listener took.
    """

    result: str
    remark: str
    took_ms: int

    @property
    def is_consumed(self) -> bool:
        """Whether the listener succeeded."""
        return self.result == "CR_SUCCESS"


def decode_progress(body: bytes) -> list[GroupProgress]:
    """Read RocketMQ's ConsumeStats (208). Raises BodyMalformed."""
    rows: list[GroupProgress] = []
    for queue, value in decode_queue_keyed("progress", "offsetTable", body).items():
        offsets = JsonObject("progress", value)
        consumed = offsets.integer("consumerOffset")
        rows.append(
            GroupProgress(
                queue,
                offsets.integer("brokerOffset"),
                consumed,
                offsets.integer("pullOffset", consumed),
                offsets.integer("lastTimestamp", 0),
            )
        )
    return rows


def decode_connections(body: bytes) -> GroupConnections:
    """Read RocketMQ's ConsumerConnection (203). Raises BodyMalformed."""
    found = JsonObject.parse("connections", body, size=LARGE)
    consumers = tuple(
        ConsumerConnection(
            one.text("clientId"),
            one.text("clientAddr"),
            one.text("language"),
            one.integer("version"),
        )
        for one in found.objects("connectionSet")
    )
    subscriptions = found.object("subscriptionTable").named_objects()
    return GroupConnections(
        consumers,
        found.text("messageModel", ""),
        found.text("consumeFromWhere", ""),
        {topic: one.text("subString", "*") for topic, one in subscriptions.items()},
        tuple(
            SubscribedAlike(
                tuple(one.texts("clientIds")),
                one.integer("members", 0),
                one.text("messageModel", ""),
                one.object("subscriptions").named_texts(),
            )
            for one in found.objects("differentSubscriptions")
        ),
    )


def decode_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Read the offsets that a group was moved to (222). Raises BodyMalformed."""
    table = JsonObject("offsets", dict[str, JsonValue]({}))
    found: dict[MessageQueue, int] = {}
    for queue, value in decode_queue_keyed("offsets", "offsetTable", body).items():
        table.members["offset"] = value
        found[queue] = table.integer("offset")
    return found


def decode_consume_status(body: bytes) -> dict[str, dict[MessageQueue, int]]:
    """Read the next offsets of each member (223), by client id. Raises BodyMalformed."""
    members = JsonObject.parse("consume status", body, size=LARGE).object("consumerTable")
    found: dict[str, dict[MessageQueue, int]] = {}
    for client_id, queues in members.named_objects().items():
        found[client_id] = {}
        for key in queues.members:
            queue = MessageQueue.from_json(
                JsonObject("consume status", parse_json("consume status", key.encode()))
            )
            found[client_id][queue] = queues.integer(key)
    return found


def decode_time_spans(body: bytes) -> list[TimeSpan]:
    """Read RocketMQ's QueryConsumeTimeSpanBody (303). Raises BodyMalformed."""
    return [
        TimeSpan(
            MessageQueue.from_json(one.object("messageQueue")),
            one.integer("minTimeStamp", 0),
            one.integer("maxTimeStamp", 0),
            one.integer("consumeTimeStamp", 0),
            one.integer("delayTime", 0),
        )
        for one in JsonObject.parse("time spans", body, size=LARGE).objects("consumeTimeSpanSet")
    ]


def decode_group_list(body: bytes) -> list[str]:
    """Read RocketMQ's GroupList (300). Raises BodyMalformed."""
    return JsonObject.parse("groups", body, size=LARGE).texts("groupList")


def decode_direct_result(body: bytes) -> DirectResult:
    """Read RocketMQ's ConsumeMessageDirectlyResult (309). Raises BodyMalformed."""
    found = JsonObject.parse("result", body)
    return DirectResult(
        found.text("consumeResult", ""),
        found.text("remark", ""),
        found.integer("spentTimeMills", 0),
    )


@dataclass(frozen=True, slots=True)
class WindowTotal:
    """The sum over one window of time.

    Attributes:
        sum: the sum of the counted values.
        per_second: the sum for each second.
        average: the sum for each event.
    """

    sum: int
    per_second: float
    average: float


@dataclass(frozen=True, slots=True)
class Statistic:
    """The counts of one group of brokers under a name and a key.

    Attributes:
        minute: in the last minute.
        hour: in the last hour.
        day: in the last day.
    """

    minute: WindowTotal
    hour: WindowTotal
    day: WindowTotal


def decode_statistic(body: bytes) -> Statistic:
    """Read RocketMQ's BrokerStatsData. Raises BodyMalformed."""
    data = JsonObject.parse("statistics", body)
    return Statistic(*(_window(data.object(f"stats{name}")) for name in ("Minute", "Hour", "Day")))


def _window(item: JsonObject) -> WindowTotal:
    return WindowTotal(item.integer("sum"), item.number("tps"), item.number("avgpt"))
