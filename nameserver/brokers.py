"""The brokers that live, by address and by broker name."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from remoting.bodies.route import MASTER_ID, QueueData
from remoting.bodies.topic_config import DataVersion


@dataclass(frozen=True, slots=True)
class Speaker:
    """The connection that a request came on.

    Attributes:
        connection: identifies the connection.
        host: the numeric address of its other end.
    """

    connection: Hashable
    host: str


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity that a broker states.

    Attributes:
        cluster: its cluster.
        broker_name: the name that it shares with the brokers that hold the same queues.
        broker_id: 0 for the master.
        address: "host:port" for clients.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str


@dataclass(slots=True)
class LiveBroker:
    """A broker that registered.

    Attributes:
        identity: the broker.
        data_version: of the topics that it registered last.
        expires_at: when it is dropped without a further sign of life.
        timeout_s: how much each sign of life adds.
        speaker: of its last registration; when that connection closes, the broker is dropped.
        ha_address: address of its replication port; passed on to its slaves.
        filter_servers: passed on to clients.
        direct_address: the own address of a leader that shares `identity.address` with the other
            members of its group, or ""; passed on to clients that know it.
        is_ending: whether it has announced its end.
    """

    identity: BrokerIdentity
    data_version: DataVersion
    expires_at: float
    timeout_s: float
    speaker: Speaker
    ha_address: str = ""
    filter_servers: list[str] = field(default_factory=list)
    direct_address: str = ""
    is_ending: bool = False

    def may_be_changed_by(self, speaker: Speaker) -> bool:
        """Return whether a request is on this broker's connection, or from the same host.

        A broker whose connection broke dials again before the name server notices that.
        """
        return speaker == self.speaker or speaker.host == self.speaker.host


@dataclass(slots=True)
class BrokerName:
    """The brokers of one name.

    Attributes:
        cluster: their cluster.
        addresses: by broker id.
        queues: by topic.
        is_write_wiped: whether an operator took away write permission.
        complete_lists: how many registrations listed all topics.
    """

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    queues: dict[str, QueueData] = field(default_factory=dict)
    is_write_wiped: bool = False
    complete_lists: int = 0


class BrokerTable:
    """The brokers that live.

    Attributes:
        by_address: each broker.
        by_name: the brokers of each name.
    """

    def __init__(self) -> None:
        self.by_address: dict[str, LiveBroker] = {}
        self.by_name: dict[str, BrokerName] = {}

    def master_of(self, broker_name: str) -> LiveBroker | None:
        name = self.by_name.get(broker_name)
        return None if name is None else self.by_address.get(name.addresses.get(MASTER_ID, ""))
