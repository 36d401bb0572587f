"""Answers operators' questions about lite topics (200074 to 200079).

Source: RocketMQ's LiteManagerProcessor.
"""

from itertools import islice
from typing import Final

from broker.errors import RequestRefused
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.lite import rows
from broker.lite.limits import MAX_LITE_TOPICS, MAX_TOLD
from broker.lite.names import lite_key
from broker.lite.popping import SUBSCRIPTIONS
from broker.lite.state import LITE
from broker.lite.subscribing import Subscribing
from broker.lite.subscriptions import Subscriber
from broker.messages.record_facts import STORE_TIMESTAMP_AT
from broker.messages.state import MESSAGES
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.topics.attributes import LITE_EXPIRATION, LITE_TYPE, MESSAGE_TYPE
from broker.topics.state import TOPICS
from dledger import OutsideLog
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.field_values import read_int64
from remoting.wire.loose_json import JsonValue, compact_json

_TIME_BYTES: Final = 8


class LiteProcessor:
    def __init__(self, parts: Parts, subscribing: Subscribing) -> None:
        self._lite = parts.state[LITE]
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._messages = parts.state[MESSAGES]
        self._log = parts.log
        self._subscriptions = parts[SUBSCRIPTIONS]
        self._subscribing = subscribing
        self._clock = parts.clock
        self._wall_clock_ms = parts.wall_clock_ms

    def broker(self, _origin: Origin, command: Command) -> Steps:
        """Tell how many lite topics there are, which topics have them, and who reads them."""
        topics: dict[str, JsonValue] = {}
        for configs in pieces(self._topics.configs.items()):
            for name, config in configs:
                if config.attributes.get(MESSAGE_TYPE) == LITE_TYPE:
                    topics[name] = self._minutes(name)
            yield
        groups: dict[str, list[JsonValue]] = {}
        for found in pieces(self._groups.configs.values()):
            for group in found:
                if group.lite_parent is not None:
                    groups.setdefault(group.lite_parent, []).append(group.group)
            yield
        return _told(
            command,
            {
                "storeType": "default",
                "maxLmqNum": MAX_LITE_TOPICS,
                "currentLmqNum": self._lite.topic_count,
                "liteSubscriptionCount": self._subscriptions.count,
                "orderInfoCount": self._lite.in_flight_count,
                "cqTableSize": self._lite.topic_count,
                "offsetTableSize": self._lite.topic_count,
                "eventMapSize": len(self._subscriptions),
                "topicMeta": topics,
                "groupMeta": dict[str, JsonValue](groups),
            },
        )

    def parent(self, _origin: Origin, command: Command) -> Steps:
        """Tell of one parent. Raises RequestRefused: (17) no such topic, (29) another type."""
        topic = command.name("topic")
        self._check_parent(topic)
        groups: list[JsonValue] = []
        for found in pieces(self._groups.configs.values()):
            groups += [one.group for one in found if one.lite_parent == topic]
            yield
        of = self._lite.parents.get(topic)
        return _told(
            command,
            {
                "topic": topic,
                "ttl": self._minutes(topic),
                "lmqNum": self._lite.topic_count,
                "liteTopicCount": 0 if of is None else len(of.topics),
                "groups": groups,
            },
        )

    def topic(self, _origin: Origin, command: Command) -> Steps:
        """Tell of one lite topic. Raises as `parent`, and RequestRefused (29): a bad name."""
        parent, lite_topic = command.name("parentTopic"), command.text("liteTopic")
        self._check_parent(parent)
        name = lite_key(lite_topic)
        row = self._lite.row(parent, name)
        subscribers: list[JsonValue] = []
        for groups in pieces(self._subscriptions.groups(parent)):
            for group in groups:
                wanted = self._subscriptions.group(parent, group)
                room = MAX_TOLD - len(subscribers)
                if wanted is None or not room:
                    continue
                if wanted.wild:
                    subscribers.append({"clientId": "*", "group": group})
                    continue
                subscribers += [
                    {"clientId": one.client_id, "group": group}
                    for one in islice(wanted.of(name), room)
                ]
            yield
        offsets: dict[str, JsonValue] = {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}
        if row is not None:
            offsets = {
                "minOffset": rows.begin(row, self._messages.kept_position),
                "maxOffset": rows.end(row),
                "lastUpdateTimestamp": rows.last_ms(row),
            }
        return _told(
            command,
            {
                "parentTopic": parent,
                "liteTopic": lite_topic,
                "subscriber": subscribers,
                "topicOffset": offsets,
                "shardingToBroker": True,
            },
        )

    def client(self, _origin: Origin, command: Command) -> Command:
        """Tell what a client has subscribed to. Raises as `parent`, and RequestRefused: (26) no
        such group, (29) it reads another topic.
        """
        parent, name = command.name("parentTopic"), command.name("group")
        self._check_parent(parent)
        config = self._group(name)
        if config.lite_parent != parent:
            raise RequestRefused.invalid(f"group {name:.120} is not bound to topic {parent:.127}")
        most = min(max(command.int32("maxCount", 1000), 0), MAX_TOLD)
        client_id = command.name("clientId")
        client = self._subscriptions.client((name, client_id))
        told: dict[str, JsonValue] = {
            "parentTopic": parent,
            "group": name,
            "clientId": client_id,
            "liteTopicCount": -1,
            "lastAccessTime": -1,
            "lastConsumeTime": -1,
        }
        if client is not None:
            silent_ms = round((self._clock() - client.told_s) * 1000)
            told["liteTopicCount"] = len(client.wanted)
            told["lastAccessTime"] = self._wall_clock_ms() - silent_ms
            told["liteTopicSet"] = [one.decode() for one in islice(client.wanted, most)]
        return _told(command, told)

    def group(self, _origin: Origin, command: Command) -> Command:
        """Tell how far a group has come in one lite topic.

        Raises RequestRefused: (1) no lite topic is named, (26) no such group, (29) it reads no lite
        topics, or a bad name.
        """
        name, lite_topic = command.name("group"), command.name("liteTopic", "")
        parent = self._lite_group(name).lite_parent or ""
        if not lite_topic:
            raise RequestRefused.failed(
                "the lags of all lite topics are not kept: name one in liteTopic"
            )
        key = lite_key(lite_topic)
        row = self._lite.row(parent, key)
        told: dict[str, JsonValue] = {
            "group": name,
            "parentTopic": parent,
            "liteTopic": lite_topic,
            "earliestUnconsumedTimestamp": -1,
            "totalLagCount": -1,
        }
        done = self._lite.done(name, parent, key)
        if row is not None and done is not None:
            end = rows.end(row)
            told["totalLagCount"] = end - done
            told["earliestUnconsumedTimestamp"] = self._stored_ms(row, done)
            told["liteTopicOffsetWrapper"] = {
                "brokerOffset": end,
                "consumerOffset": done,
                "lastTimestamp": self._stored_ms(row, done - 1),
            }
        return _told(command, told)

    def dispatch(self, _origin: Origin, command: Command) -> Steps:
        """Have all lite topics of a client, or of a group's clients, looked at for messages."""
        name, client_id = command.name("group"), command.name("clientId", "")
        self._lite_group(name)
        clients: list[Subscriber] = []
        if not client_id:
            for some in pieces(self._subscriptions.clients()):
                clients += [one for one in some if one.group == name]
                yield
        elif (client := self._subscriptions.client((name, client_id))) is not None:
            clients = [client]
        self._subscribing.make_all_ready(clients)
        return command.reply()

    def _check_parent(self, topic: str) -> None:
        config = self._topics.found(topic)
        if config.attributes.get(MESSAGE_TYPE) != LITE_TYPE:
            raise RequestRefused.invalid(f"topic {topic:.127} has no lite topics: see message.type")

    def _group(self, name: str) -> ConsumerGroup:
        config = self._groups.configs.get(name)
        if config is None:
            raise RequestRefused.no_group(f"no group {name:.120}: create it")
        return config

    def _lite_group(self, name: str) -> ConsumerGroup:
        config = self._group(name)
        if config.lite_parent is None:
            raise RequestRefused.invalid(f"group {name:.120} reads no lite topics: lite.bind.topic")
        return config

    def _minutes(self, topic: str) -> int:
        config = self._topics.configs.get(topic)
        minutes = None if config is None else read_int64(config.attributes.get(LITE_EXPIRATION, ""))
        return -1 if minutes is None else minutes

    def _stored_ms(self, row: rows.Row, offset: int) -> int:
        if not rows.begin(row, self._messages.kept_position) <= offset < rows.end(row):
            return -1
        try:
            at = rows.position(row, offset) + STORE_TIMESTAMP_AT
            return int.from_bytes(self._log.read_bytes(at, _TIME_BYTES), "big")
        except OutsideLog:
            return -1


def _told(command: Command, body: dict[str, JsonValue]) -> Command:
    return command.reply(body=compact_json(body).encode())
