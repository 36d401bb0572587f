"""A name server at its limits, and the costliest requests of each of its codes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bench.costs.dear import by_code, dear
from nameserver.brokers import Speaker
from nameserver.limits import MAX_BROKERS, MAX_TOPICS
from nameserver.processors import Asker, Processors
from nameserver.routes import RouteTable
from nameserver.settings import SettingTable
from remoting.bodies.pieces import last_of
from remoting.bodies.registration import (
    MAX_INFLATED_BYTES,
    BrokerRegistration,
    encode_registration,
)
from remoting.bodies.topic_config import MAX_TABLE_TOPICS, DataVersion, TopicConfig
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

CODE: Final = RequestCode

# A topic that all brokers have.
EVERYWHERE: Final = "everywhere"
CLUSTER: Final = "c"

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Routes:
    """How many there are of each. The defaults are what the limits allow.

    Attributes:
        brokers: with one topic each.
        topics: in all.
        topics_of_broker: of one registration.
    """

    brokers: int = MAX_BROKERS - 8
    topics: int = MAX_TOPICS - 1000
    topics_of_broker: int = MAX_TABLE_TOPICS - 1000


class FullNameServer:
    """A name server at its limits."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.table = RouteTable()
        self.processors = Processors(self.table, SettingTable())
        self.asker = Asker(Speaker("connection", "10.0.0.1"), 1.0)
        for number in range(routes.brokers):
            self._tell(register(number, [EVERYWHERE]))
        left = routes.topics - 1
        for number in range(-(-left // routes.topics_of_broker)):
            count = min(routes.topics_of_broker, left - number * routes.topics_of_broker)
            self._tell(register(number, [EVERYWHERE, *_topics(number, count)]))

    def _tell(self, command: Command) -> None:
        steps = self.processors.table.handle(self.asker, command)
        assert steps is not None
        reply = steps if isinstance(steps, Command) else last_of(steps)
        assert reply is not None
        assert reply.code == 0, reply


def _topics(broker: int, count: int) -> list[str]:
    return [f"topic-{broker}-{number}" for number in range(count)]


def identity(number: int) -> dict[str, str]:
    return {
        **{"brokerName": f"b{number}", "clusterName": CLUSTER, "brokerId": "0"},
        "brokerAddr": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:10911",
    }


def register(number: int, topics: Iterable[str], version: int = 1) -> Command:
    """Return a registration in the form of our brokers."""
    configs = {topic: TopicConfig(topic, 4, 4) for topic in topics}
    body = encode_registration(BrokerRegistration(configs, DataVersion(version, 5, 1)))
    return Command(CODE.REGISTER_BROKER, identity(number) | {"completeTopics": "true"}, body)


def _compressed(number: int, lines: Iterable[str]) -> Command:
    told = [_chunk(line.encode()) for line in lines]
    version = _chunk(b'{"counter":1,"timestamp":1,"stateVersion":0}')
    raw = version + _LENGTH.pack(len(told)) + b"".join(told) + _chunk(b"[]")
    fields = identity(number) | {"compressed": "true"}
    return Command(CODE.REGISTER_BROKER, fields, zlib.compress(raw, 9))


def _chunk(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def dearest_of_nameserver(full: FullNameServer) -> dict[int, dict[str, Command]]:
    """Return the costliest requests by code and description; the largest removals are last."""
    count = full.routes.topics_of_broker
    setting = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}
    queues = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSynFlag": 0}
    route = {"queueDatas": [{**queues, "brokerName": f"b{n}"} for n in range(4000)]}
    plain = (
        CODE.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        CODE.GET_NAMESRV_CONFIG,
        CODE.GET_BROKER_CLUSTER_INFO,
        CODE.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        CODE.GET_UNIT_TOPIC_LIST,
        CODE.GET_HAS_UNIT_SUB_TOPIC_LIST,
        CODE.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        CODE.UPDATE_NAMESRV_CONFIG,
    )
    odd = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {}, "x": [0] * 60_000}})
    version = compact_json(DataVersion(1, 5, 1).to_json()).encode()
    b0 = {"brokerName": "b0"}
    return by_code(
        [
            *(dear("any", code) for code in plain),
            dear("brokers", CODE.GET_ROUTEINFO_BY_TOPIC, topic=EVERYWHERE),
            dear("topics", CODE.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER),
            dear("another cluster", CODE.GET_TOPICS_BY_CLUSTER, cluster="nobody's"),
            dear("any", CODE.GET_BROKER_MEMBER_GROUP, **b0),
            dear("any", CODE.QUERY_DATA_VERSION, version, **identity(0)),
            dear("any", CODE.BROKER_HEARTBEAT, **identity(0)),
            dear("any", CODE.PUT_KV_CONFIG, **setting),
            dear("any", CODE.GET_KV_CONFIG, **setting),
            dear("any", CODE.GET_KVLIST_BY_NAMESPACE, **setting),
            dear("any", CODE.DELETE_KV_CONFIG, **setting),
            dear("topics", CODE.WIPE_WRITE_PERM_OF_BROKER, **b0),
            dear("topics", CODE.ADD_WRITE_PERM_OF_BROKER, **b0),
            dear(
                "brokers",
                CODE.REGISTER_TOPIC_IN_NAMESRV,
                compact_json(route).encode(),
                topic="added",
            ),
            dear("brokers", CODE.DELETE_TOPIC_IN_NAMESRV, topic="added"),
            ("topics", register(0, [EVERYWHERE, *_topics(0, count)], 2)),
            ("equal lines", _compressed(full.routes.brokers, ["T 8 8 6 SINGLE_TAG"] * count)),
            (
                "lines",
                _compressed(
                    0, [f'{topic} 8 8 6 SINGLE_TAG {{"a":"b"}}' for topic in _topics(0, count)]
                ),
            ),
            dear(
                "what inflates",
                CODE.REGISTER_BROKER,
                zlib.compress(bytes(MAX_INFLATED_BYTES + 1), 9),
                **(identity(0) | {"compressed": "true"}),
            ),
            dear("values", CODE.REGISTER_BROKER, odd.encode(), **identity(0)),
            ("fewer topics", register(0, [EVERYWHERE], 3)),
            dear("topics", CODE.UNREGISTER_BROKER, **identity(1)),
        ]
    )
