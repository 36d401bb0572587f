"""The answer to a client's route request (105), and the cluster (106).

Keys are quoted and there are no spaces: the one form every client reads. The two arrays are always
present, because the JavaScript client sorts them unchecked. Source: RocketMQ's TopicRouteData and
ClusterInfo.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from remoting.bodies.json_object import JsonObject
from remoting.bodies.pieces import last_of, pieces
from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import read_natural
from remoting.wire.loose_json import LARGE, JsonValue, compact_json

# The broker id of the master of a broker name; every other id is a slave's.
MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic's queues on one broker name.

    Attributes:
        broker_name: the group of brokers that hold the same queues.
        read_queue_count: queues consumers see.
        write_queue_count: queues producers see.
        permission: bits of 4 read, 2 write, 1 inherit.
        topic_system_flag: 1 unit, 2 unit subscription.
    """

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    permission: int
    topic_system_flag: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "brokerName": self.broker_name,
            "perm": self.permission,
            "readQueueNums": self.read_queue_count,
            "topicSysFlag": self.topic_system_flag,
            "writeQueueNums": self.write_queue_count,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "QueueData":
        """Decode it; up to 4.8.0 the system flag was written `topicSynFlag`. Raises
        BodyMalformed.
        """
        return cls(
            value.text("brokerName"),
            value.integer("readQueueNums"),
            value.integer("writeQueueNums"),
            value.integer("perm"),
            value.integer("topicSysFlag", value.integer("topicSynFlag", 0)),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The brokers of one name.

    Attributes:
        cluster: the cluster they belong to.
        broker_name: their name.
        addresses: "host:port" by broker id; id 0 is the master.
        direct: the master's own address, if `addresses` has one of its whole group; else None.
            RocketMQ has no such member, and its clients ignore it.
    """

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]
    direct: str | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Encode it, lowest id first."""
        value: dict[str, JsonValue] = {
            "brokerAddrs": {
                str(number): self.addresses[number] for number in sorted(self.addresses)
            },
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": False,
        }
        if self.direct is not None:
            value["directAddr"] = self.direct
        return value

    @classmethod
    def from_json(cls, value: JsonObject) -> "BrokerData":
        """Decode it. Raises BodyMalformed."""
        addresses: dict[int, str] = {}
        for key, address in value.object("brokerAddrs").named_texts().items():
            broker_id = read_natural(key)
            if broker_id is None:
                raise BodyMalformed(value.body_name, f"broker id {key!r:.40} is not a number")
            addresses[broker_id] = address
        direct = value.optional_text("directAddr")
        return cls(value.text("cluster", ""), value.text("brokerName"), addresses, direct)

    @property
    def master(self) -> str | None:
        """The master's address, or None while there is none."""
        return self.addresses.get(MASTER_ID)

    @property
    def leader(self) -> str | None:
        """The master's own address, or None while there is none."""
        return self.master and (self.direct or self.master)


@dataclass(slots=True)
class TopicRoute:
    """The brokers and queues of one topic.

    Attributes:
        queues: one entry a broker name.
        brokers: the brokers of these names.
        order_topic_conf: "name:count;..." if an order configuration fixes the queues, or None.
        filter_servers: class filter servers by broker address; obsolete.
    """

    queues: list[QueueData] = field(default_factory=list)
    brokers: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None
    filter_servers: dict[str, list[str]] = field(default_factory=dict)


def encode_route(route: TopicRoute) -> bytes:
    body: dict[str, object] = {
        "brokerDatas": [broker.to_json() for broker in route.brokers],
        "filterServerTable": route.filter_servers,
        "queueDatas": [queue.to_json() for queue in route.queues],
    }
    if route.order_topic_conf is not None:
        body["orderTopicConf"] = route.order_topic_conf
    return compact_json(body).encode()


def encode_route_in_steps(parts: Iterable[TopicRoute]) -> Generator[None, None, bytes]:
    """Encode the reply to a route request from a route in parts, one in each step."""
    brokers: list[str] = []
    queues: list[str] = []
    servers: dict[str, list[str]] = {}
    order: str | None = None
    for part in parts:
        brokers += [compact_json(broker.to_json()) for broker in part.brokers]
        queues += [compact_json(queue.to_json()) for queue in part.queues]
        servers |= part.filter_servers
        order = order or part.order_topic_conf
        yield
    tail = "" if order is None else f',"orderTopicConf":{compact_json(order)}'
    return (
        f'{{"brokerDatas":[{",".join(brokers)}],"filterServerTable":{compact_json(servers)},'
        f'"queueDatas":[{",".join(queues)}]{tail}}}'
    ).encode()


def decode_route(body: bytes) -> TopicRoute:
    """Decode the reply to a route request, from any version of RocketMQ. Raises BodyMalformed."""
    return last_of(decode_route_in_steps(body))


def decode_route_in_steps(
    body: bytes, max_bytes: int | None = None
) -> Generator[None, None, TopicRoute]:
    """Decode a route in steps. `max_bytes` is the longest accepted body; None leaves it to the
    limit of frames.
    """
    value = JsonObject.parse("route", body, max_bytes)
    servers = value.object("filterServerTable")
    route = TopicRoute(
        order_topic_conf=value.optional_text("orderTopicConf"),
        filter_servers={address: servers.texts(address) for address in servers.members},
    )
    for queues in pieces(value.objects("queueDatas")):
        yield
        route.queues += map(QueueData.from_json, queues)
    for brokers in pieces(value.objects("brokerDatas")):
        yield
        route.brokers += map(BrokerData.from_json, brokers)
    yield
    return route


@dataclass(slots=True)
class ClusterInfo:
    """Every broker a name server knows.

    Attributes:
        brokers: by broker name.
        clusters: the broker names of each cluster.
    """

    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)


def encode_cluster_info(info: ClusterInfo) -> bytes:
    return last_of(encode_cluster_info_in_steps(info))


def encode_cluster_info_in_steps(info: ClusterInfo) -> Generator[None, None, bytes]:
    rows: list[str] = []
    for piece in pieces(info.brokers.items()):
        rows += [f"{compact_json(name)}:{compact_json(data.to_json())}" for name, data in piece]
        yield
    clusters = compact_json(info.clusters)
    return f'{{"brokerAddrTable":{{{",".join(rows)}}},"clusterAddrTable":{clusters}}}'.encode()


def decode_cluster_info(body: bytes) -> ClusterInfo:
    """Decode the reply to a cluster request. Raises BodyMalformed."""
    value = JsonObject.parse("cluster info", body, size=LARGE)
    brokers = value.object("brokerAddrTable").named_objects()
    clusters = value.object("clusterAddrTable")
    return ClusterInfo(
        {name: BrokerData.from_json(broker) for name, broker in brokers.items()},
        {name: clusters.texts(name) for name in clusters.members},
    )
