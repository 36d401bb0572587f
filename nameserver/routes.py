"""The route table: which brokers live, and which topics each serves.

A broker name has at most one address a broker id, so never two masters. A broker that registers as
master (id 0) takes the name over at once, unless the state version of its registration is lower
than the present master's. Our brokers put their Raft term there, so that a leader that was deposed
while it slept cannot take the name back; RocketMQ 5 uses it in the same way, RocketMQ 4 always
sends 0.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nameserver.errors import RegistrationRefused, StaleMaster, TableFull
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRoute
from remoting.bodies.topic_config import PERMISSION_WRITE, DataVersion, TopicConfig
from remoting.net.address import parse_address

# RocketMQ's: four registrations may be missed before a broker is dropped.
BROKER_TIMEOUT_SECONDS: Final = 120.0

# A broker may ask for another timeout; shorter than its register period would make it flicker, and
# longer than an hour would keep the dead.
MIN_BROKER_TIMEOUT_SECONDS: Final = 10.0
MAX_BROKER_TIMEOUT_SECONDS: Final = 3600.0

# Far above any cluster; they bound what a stranger can make us hold.
MAX_BROKERS: Final = 4096
MAX_TOPICS: Final = 200_000


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity that a broker states.

    Attributes:
        cluster: its cluster.
        broker_name: the name it shares with the brokers that hold the same queues.
        broker_id: 0 for the master.
        address: "host:port" clients can reach.
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
        data_version: of the topics it told last.
        expires_at: when it is dropped unless it is heard of.
        timeout_seconds: how much each sign of life adds.
        connection: where it registered last; when that closes, it is dropped.
        ha_address: address of its replication port; passed on to its slaves.
        filter_servers: passed on to clients.
    """

    identity: BrokerIdentity
    data_version: DataVersion
    expires_at: float
    timeout_seconds: float
    connection: Hashable
    ha_address: str = ""
    filter_servers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _BrokerName:
    """The brokers of one name."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    queues: dict[str, QueueData] = field(default_factory=dict)  # by topic
    is_write_wiped: bool = False


class RouteTable:
    """Everything the name server knows of brokers. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._names: dict[str, _BrokerName] = {}
        self._live: dict[str, LiveBroker] = {}  # by address
        self._topics: dict[str, set[str]] = {}  # the broker names of each topic

    def register(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        *,
        connection: Hashable,
        now: float,
        complete: bool = False,
        ha_address: str = "",
        timeout_seconds: float = BROKER_TIMEOUT_SECONDS,
    ) -> LiveBroker | None:
        """Take a broker's registration.

        Topics count when the master tells them, or a slave while the name has no master.

        Args:
            identity: the broker that registers.
            registration: its topics.
            connection: where it came from.
            now: the time.
            complete: whether topics that are not listed are gone; otherwise they stay.
            ha_address: its replication port.
            timeout_seconds: how long it lives without a sign of life; bounded.

        Returns:
            The master of its name when that is another broker, else None.

        Raises:
            StaleMaster: a newer master is known.
            RegistrationRefused: the identity makes no sense.
            AddressMalformed: its address is not "host:port".
            TableFull: too many brokers or topics.
        """
        self._check(identity, registration)
        name = self._names.get(identity.broker_name)
        if name is None:
            name = self._names[identity.broker_name] = _BrokerName(identity.cluster)
        name.cluster = identity.cluster
        self._take_place(name, identity)
        timeout = min(max(timeout_seconds, MIN_BROKER_TIMEOUT_SECONDS), MAX_BROKER_TIMEOUT_SECONDS)
        self._live[identity.address] = LiveBroker(
            identity,
            registration.data_version,
            now + timeout,
            timeout,
            connection,
            ha_address,
            list(registration.filter_servers),
        )
        if identity.broker_id == MASTER_ID or MASTER_ID not in name.addresses:
            self._take_topics(identity.broker_name, name, registration.topics, complete)
        return None if identity.broker_id == MASTER_ID else self.master_of(identity.broker_name)

    def _check(self, identity: BrokerIdentity, registration: BrokerRegistration) -> None:
        """Refuse what cannot be taken, before anything is changed."""
        if not identity.broker_name or not identity.cluster or identity.broker_id < 0:
            raise RegistrationRefused(
                "brokerName and clusterName must not be empty and brokerId not negative: set them"
            )
        parse_address(identity.address)
        if identity.address not in self._live and len(self._live) >= MAX_BROKERS:
            raise TableFull("brokers", MAX_BROKERS)
        new = sum(1 for topic in registration.topics if topic not in self._topics)
        if len(self._topics) + new > MAX_TOPICS:
            raise TableFull("topics", MAX_TOPICS)
        master = self.master_of(identity.broker_name)
        if identity.broker_id == MASTER_ID and master is not None:
            known, told = master.data_version.state_version, registration.data_version.state_version
            if master.identity.address != identity.address and told < known:
                raise StaleMaster(
                    identity.broker_name, identity.address, told, master.identity.address, known
                )

    def _take_place(self, name: _BrokerName, identity: BrokerIdentity) -> None:
        """Give an address its broker id, and take both from their previous owners."""
        before = self._live.get(identity.address)
        if before is not None and before.identity != identity:
            other = before.identity
            if (other.broker_name, other.broker_id) != (identity.broker_name, identity.broker_id):
                self._remove(before, keep_name=identity.broker_name)
        holder = name.addresses.get(identity.broker_id)
        if holder is not None and holder != identity.address:
            self._live.pop(holder, None)
        name.addresses[identity.broker_id] = identity.address

    def _take_topics(
        self,
        broker_name: str,
        name: _BrokerName,
        topics: Mapping[str, TopicConfig],
        complete: bool,
    ) -> None:
        """Replace a broker name's queues by the registered ones."""
        if complete:
            for topic in name.queues.keys() - topics.keys():
                self._forget_queues(topic, broker_name)
        for topic, config in topics.items():
            name.queues[topic] = QueueData(
                broker_name,
                config.read_queue_count,
                config.write_queue_count,
                config.permission,
                config.topic_system_flag,
            )
            self._topics.setdefault(topic, set()).add(broker_name)

    def unregister(self, identity: BrokerIdentity) -> bool:
        """Drop a broker that says good-bye; false when it was not known as that."""
        live = self._live.get(identity.address)
        if live is None or live.identity.broker_name != identity.broker_name:
            return False
        self._remove(live)
        return True

    def refresh(self, address: str, now: float) -> bool:
        """Note a sign of life of a broker; false when it is not known."""
        live = self._live.get(address)
        if live is None:
            return False
        live.expires_at = now + live.timeout_seconds
        return True

    def expire(self, now: float) -> list[LiveBroker]:
        """Drop the brokers whose time has come, and return them."""
        dead = [live for live in self._live.values() if live.expires_at <= now]
        for live in dead:
            self._remove(live)
        return dead

    def next_expiry(self) -> float | None:
        """When the next broker would be dropped, or None when none lives."""
        return min((live.expires_at for live in self._live.values()), default=None)

    def connection_closed(self, connection: Hashable) -> list[LiveBroker]:
        """Drop the brokers that registered last on a connection that closed, and return them."""
        dead = [live for live in self._live.values() if live.connection == connection]
        for live in dead:
            self._remove(live)
        return dead

    def _remove(self, live: LiveBroker, keep_name: str | None = None) -> None:
        """Drop a broker; its name and queues go with the last of the name, unless kept."""
        identity = live.identity
        self._live.pop(identity.address, None)
        name = self._names.get(identity.broker_name)
        if name is None:
            return
        if name.addresses.get(identity.broker_id) == identity.address:
            del name.addresses[identity.broker_id]
        if not name.addresses and identity.broker_name != keep_name:
            for topic in list(name.queues):
                self._forget_queues(topic, identity.broker_name)
            del self._names[identity.broker_name]

    def _forget_queues(self, topic: str, broker_name: str) -> None:
        """Forget that a topic lives on a broker name."""
        self._names[broker_name].queues.pop(topic, None)
        names = self._topics.get(topic)
        if names is not None:
            names.discard(broker_name)
            if not names:
                del self._topics[topic]

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Forget a topic, on one cluster or on all; false when it was not known there."""
        names = [
            name
            for name in self._topics.get(topic, ())
            if cluster is None or self._names[name].cluster == cluster
        ]
        for name in names:
            self._forget_queues(topic, name)
        return bool(names)

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Add a topic's queues on broker names that are known (request 217); others are left out.

        Raises:
            TableFull: too many topics.
        """
        if topic not in self._topics and len(self._topics) >= MAX_TOPICS:
            raise TableFull("topics", MAX_TOPICS)
        for queue in queues:
            name = self._names.get(queue.broker_name)
            if name is not None:
                name.queues[topic] = queue
                self._topics.setdefault(topic, set()).add(queue.broker_name)

    def set_write_wiped(self, broker_name: str, wiped: bool) -> int:
        """Take away or give back write permission on all queues of a broker name.

        It stays taken away, whatever the broker registers, until it is given back or the last
        broker of the name is gone.

        Returns:
            How many topics it concerns.
        """
        name = self._names.get(broker_name)
        if name is None:
            return 0
        name.is_write_wiped = wiped
        return len(name.queues)

    def route(self, topic: str) -> TopicRoute | None:
        """Where a topic lives, or None when no living broker serves it."""
        names = sorted(self._topics.get(topic, ()))
        if not names:
            return None
        filter_servers: dict[str, list[str]] = {}
        for broker_name in names:
            for address in self._names[broker_name].addresses.values():
                live = self._live.get(address)
                if live is not None and live.filter_servers:
                    filter_servers[address] = live.filter_servers
        queues = [self._queue_data(broker_name, topic) for broker_name in names]
        brokers = [self._broker_data(broker_name) for broker_name in names]
        return TopicRoute(queues, brokers, filter_servers=filter_servers)

    def _queue_data(self, broker_name: str, topic: str) -> QueueData:
        name = self._names[broker_name]
        queue = name.queues[topic]
        if not name.is_write_wiped:
            return queue
        return QueueData(
            queue.broker_name,
            queue.read_queue_count,
            queue.write_queue_count,
            queue.permission & ~PERMISSION_WRITE,
            queue.topic_system_flag,
        )

    def _broker_data(self, broker_name: str) -> BrokerData:
        name = self._names[broker_name]
        return BrokerData(name.cluster, broker_name, dict(name.addresses))

    def broker(self, broker_name: str) -> BrokerData | None:
        """The brokers of a name, or None."""
        return self._broker_data(broker_name) if broker_name in self._names else None

    def live(self, address: str) -> LiveBroker | None:
        """The broker at an address, or None."""
        return self._live.get(address)

    def master_of(self, broker_name: str) -> LiveBroker | None:
        """The master of a name, or None while it has none."""
        name = self._names.get(broker_name)
        return None if name is None else self._live.get(name.addresses.get(MASTER_ID, ""))

    def cluster_info(self) -> ClusterInfo:
        """Every broker by name, and the names of each cluster."""
        info = ClusterInfo()
        for broker_name in sorted(self._names):
            data = self._broker_data(broker_name)
            info.brokers[broker_name] = data
            info.clusters.setdefault(data.cluster, []).append(broker_name)
        return info

    def topics(self) -> list[str]:
        """Every topic, sorted."""
        return sorted(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics some broker of a cluster serves, sorted."""
        topics: set[str] = set()
        for name in self._names.values():
            if name.cluster == cluster:
                topics.update(name.queues)
        return sorted(topics)

    def topics_flagged(self, mask: int, value: int) -> list[str]:
        """The topics whose system flag has `value` in the bits of `mask` on some broker, sorted."""
        return sorted(
            {
                topic
                for name in self._names.values()
                for topic, queue in name.queues.items()
                if queue.topic_system_flag & mask == value
            }
        )
