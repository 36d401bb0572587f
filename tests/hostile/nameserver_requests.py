"""Each request that a name server answers, with all that it reads."""

from __future__ import annotations

from remoting.bodies.registration import BrokerRegistration, encode_registration
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

BROKER = "10.0.0.1:10911"

IDENTITY = {"brokerName": "b", "brokerAddr": BROKER, "clusterName": "cl", "brokerId": "0"}
SETTING = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}

REGISTRATION = encode_registration(
    BrokerRegistration(
        {"T": TopicConfig("T", attributes={"+a": "b"})}, DataVersion(1, 5), ["10.0.0.1:10920"]
    )
)
VERSION = compact_json(DataVersion(1, 5).to_json()).encode()
QUEUES = {"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
ROUTE = {
    "queueDatas": [{**QUEUES, "topicSysFlag": 0, "topicSynFlag": 0}],
    "brokerDatas": [
        {
            "brokerAddrs": {"0": BROKER},
            "brokerName": "b",
            "cluster": "cl",
            "directAddr": "10.0.0.1:10921",
        }
    ],
    "filterServerTable": {BROKER: ["10.0.0.1:10920"]},
    "orderTopicConf": "b:4",
}

# Each code: the fields it reads, and a body that is right.
REQUESTS: dict[RequestCode, tuple[dict[str, str], bytes]] = {
    RequestCode.PUT_KV_CONFIG: (SETTING, b""),
    RequestCode.GET_KV_CONFIG: (SETTING, b""),
    RequestCode.DELETE_KV_CONFIG: (SETTING, b""),
    RequestCode.REGISTER_BROKER: (
        IDENTITY
        | {
            "haServerAddr": "10.0.0.1:10912",
            "directAddr": "10.0.0.1:10921",
            "groupProof": "",
            "bodyCrc32": "0",
            "compressed": "false",
            "completeTopics": "true",
            "heartbeatTimeoutMillis": "30000",
        },
        REGISTRATION,
    ),
    RequestCode.UNREGISTER_BROKER: (IDENTITY, b""),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ({"topic": "T"}, b""),
    RequestCode.GET_BROKER_CLUSTER_INFO: ({}, b""),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "b"}, b""),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ({}, b""),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ({"topic": "T", "clusterName": "cl"}, b""),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: ({"topic": "T"}, compact_json(ROUTE).encode()),
    RequestCode.GET_KVLIST_BY_NAMESPACE: ({"namespace": "ORDER_TOPIC_CONFIG"}, b""),
    RequestCode.GET_TOPICS_BY_CLUSTER: ({"cluster": "cl"}, b""),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ({}, b""),
    RequestCode.GET_UNIT_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ({}, b""),
    RequestCode.UPDATE_NAMESRV_CONFIG: ({}, b"a=b"),
    RequestCode.GET_NAMESRV_CONFIG: ({}, b""),
    RequestCode.QUERY_DATA_VERSION: (IDENTITY, VERSION),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "b"}, b""),
    RequestCode.GET_BROKER_MEMBER_GROUP: ({"brokerName": "b", "clusterName": "cl"}, b""),
    RequestCode.BROKER_HEARTBEAT: ({"brokerAddr": BROKER, "ending": "false"}, b""),
}


def register_command(topics: tuple[str, ...] = ("T",)) -> Command:
    """A registration of the broker that all goes on with."""
    registration = BrokerRegistration(
        {topic: TopicConfig(topic, 4, 4) for topic in topics}, DataVersion(1, 5)
    )
    fields = IDENTITY | {"bodyCrc32": "0", "compressed": "false", "completeTopics": "true"}
    return Command(RequestCode.REGISTER_BROKER, fields, encode_registration(registration))
