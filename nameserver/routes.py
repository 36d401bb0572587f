"""The route table: which brokers live, and which topics each serves.

A broker name has at most one address a broker id, so never two masters. A broker that registers as
master (id 0) takes the name over at once, unless the state version of its registration is lower
than the present master's. Our brokers put their Raft term there, so that a leader that was deposed
while it was stopped cannot take the name back; RocketMQ 5 uses it in the same way, RocketMQ 4
always sends 0.

Any program could send a higher version. So the members of a group of ours register with a proof
that only they share. It has priority over brokers without one: it takes its name and its address
from them, whatever their versions. While it holds the name, and a few seconds longer, registrations
without the proof are refused (see `nameserver.holders`).
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any, Final

from nameserver import limits
from nameserver.brokers import BrokerIdentity, BrokerName, BrokerTable, LiveBroker, Speaker
from nameserver.errors import BrokerAlive
from nameserver.holders import Holders
from nameserver.registration_check import RegistrationCheck
from nameserver.topic_places import TopicPlaces
from remoting.bodies.pieces import last_of, pieces
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRoute
from remoting.bodies.topic_config import PERMISSION_WRITE, TopicConfig

# RocketMQ's value: a broker may miss four registrations before it is dropped.
BROKER_TIMEOUT_S: Final = 120.0

# A broker may request another timeout. One shorter than its registration period would make it
# flicker, and one longer than an hour would keep dead brokers.
MIN_BROKER_TIMEOUT_S: Final = 10.0
MAX_BROKER_TIMEOUT_S: Final = 3600.0

_TOPICS_A_STEP: Final = 256

# Brokers that are dropped in one check.
_DROPPED_AT_ONCE: Final = 64

# Sorting this many topics takes some milliseconds.
_MAX_SORTED: Final = 20_000


def _any(_cluster: str, _queues: QueueData) -> bool:
    return True


class RouteTable:
    """The brokers and their topics, as registered. Times are seconds on the caller's clock.

    Attributes:
        brokers: the brokers that live.
        places: the broker names of each topic.
    """

    def __init__(self) -> None:
        self.brokers = BrokerTable()
        self._names = self.brokers.by_name
        self._live = self.brokers.by_address
        self.places = TopicPlaces(self._names)
        self._changes = 0
        self._holders = Holders()
        self._check = RegistrationCheck(self.brokers, self.places, self._holders)

    @property
    def changes(self) -> int:
        """A number that grows with each change of lists of topics and brokers."""
        return self._changes + self.places.changes

    def register(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        *,
        speaker: Speaker,
        now: float,
        **more: Any,
    ) -> LiveBroker | None:
        """Take a registration like `register_in_steps`, at once."""
        return last_of(
            self.register_in_steps(identity, registration, speaker=speaker, now=now, **more)
        )

    def register_in_steps(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        *,
        speaker: Speaker,
        now: float,
        complete: bool = False,
        ha_address: str = "",
        direct_address: str = "",
        timeout_s: float = BROKER_TIMEOUT_S,
        proof: str = "",
    ) -> Generator[None, None, LiveBroker | None]:
        """Take a broker's registration, in steps of less than a millisecond.

        Topics count if the master registers them, or a slave while the name has no master. They are
        taken one after the other, until a later registration lists all topics of the name.

        Args:
            identity: the broker that registers.
            registration: its topics.
            speaker: the connection.
            now: the time.
            complete: whether topics that are not listed are gone; otherwise they stay.
            ha_address: its replication port.
            direct_address: its own address, if `identity.address` is that of its group.
            timeout_s: how long it lives without a sign of life; bounded.
            proof: the shared proof of its group's members; "" without one.

        Returns:
            The master of its name if that is another broker, else None.

        Raises:
            StaleMaster: a newer master is known.
            NameHeld: a group with another proof holds the name.
            BrokerAlive: another host registered this address, and its connection is open.
            RegistrationRefused: a name or number is impossible.
            AddressMalformed: its address is not "host:port".
            TableFull: too many brokers or topics.
        """
        facts = (identity, registration, speaker, ha_address, direct_address, proof, now)
        self._check.check_broker(*facts)
        yield from self._check.check_topics(identity.broker_name, registration.topics)
        self._check.check_broker(*facts)  # other registrations came meanwhile
        if self._holders.is_new(identity.broker_name, proof):
            self._drop_others(identity)
        self._changes += 1
        name = self._names.get(identity.broker_name)
        if name is None:
            name = self._names[identity.broker_name] = BrokerName(identity.cluster)
        name.cluster = identity.cluster
        self._take_place(name, identity)
        broker_timeout_s = min(max(timeout_s, MIN_BROKER_TIMEOUT_S), MAX_BROKER_TIMEOUT_S)
        if proof:
            self._holders.hold(identity.broker_name, proof, now + broker_timeout_s, now)
        self._live[identity.address] = LiveBroker(
            identity,
            registration.data_version,
            now + broker_timeout_s,
            broker_timeout_s,
            speaker,
            ha_address,
            list(registration.filter_servers),
            direct_address,
        )
        if identity.broker_id == MASTER_ID or MASTER_ID not in name.addresses:
            yield from self._take_topics(identity.broker_name, name, registration.topics, complete)
        if identity.broker_id == MASTER_ID:
            return None
        return self.brokers.master_of(identity.broker_name)

    def _drop_others(self, identity: BrokerIdentity) -> None:
        """Drop the brokers of a name, before a group with a proof takes it from them."""
        for live in list(self._live.values()):
            if live.identity.broker_name == identity.broker_name:
                self._remove(live, keep_name=identity.broker_name)

    def _take_place(self, name: BrokerName, identity: BrokerIdentity) -> None:
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
        name: BrokerName,
        topics: Mapping[str, TopicConfig],
        complete: bool,
    ) -> Generator[None, None, None]:
        """Replace a broker name's queues by the registered ones."""
        name.complete_lists += complete
        turn = name.complete_lists
        gone = sorted(name.queues.keys() - topics.keys()) if complete else []
        for number, (topic, config) in enumerate(chain(zip(gone, repeat(None)), topics.items()), 1):
            if number % _TOPICS_A_STEP == 0:
                yield
                # Meanwhile another list may have come, or the last broker of the name has gone.
                if self._names.get(broker_name) is not name or name.complete_lists != turn:
                    return
            if config is None:
                self.places.remove(topic, broker_name)
                continue
            queue = QueueData(
                broker_name,
                config.read_queue_count,
                config.write_queue_count,
                config.permission,
                config.topic_system_flag,
            )
            self.places.put(topic, name, queue)

    def unregister(self, identity: BrokerIdentity, speaker: Speaker) -> bool:
        """Drop a broker that says good-bye; return False if it was not known under that name.

        Raises:
            BrokerAlive: another host registered this address, and its connection is open; or
                another connection, if a group with a proof holds its name.
        """
        live = self._live.get(identity.address)
        if live is None or live.identity.broker_name != identity.broker_name:
            return False
        held = identity.broker_name in self._holders and speaker != live.speaker
        if held or not live.may_be_changed_by(speaker):
            raise BrokerAlive(identity.address)
        self._remove(live)
        return True

    def refresh(self, address: str, speaker: Speaker, now: float) -> bool:
        """Note a sign of life; return False if the broker is not known, or is another host's."""
        live = self._live.get(address)
        if live is None or not live.may_be_changed_by(speaker):
            return False
        live.expires_at = now + live.timeout_s
        return True

    def ends(self, address: str, connection: Hashable) -> None:
        """Note that a broker is about to end; it stays until its connection closes.

        A leader of a group shares its address with the next one, so only the connection tells which
        of them speaks.
        """
        live = self._live.get(address)
        if live is not None and live.speaker.connection == connection:
            live.is_ending = True

    def expire(self, now: float) -> list[LiveBroker]:
        """Drop some of the brokers without a recent sign of life, and return them.

        If more are left, `next_expiry` has passed.
        """
        silent = (live for live in self._live.values() if live.expires_at <= now)
        dead = list(islice(silent, _DROPPED_AT_ONCE))
        for live in dead:
            self._remove(live)
        self._holders.expire(now)
        return dead

    def next_expiry(self) -> float | None:
        """Return when the next broker will be dropped; None without brokers."""
        return min((live.expires_at for live in self._live.values()), default=None)

    def connection_closed(self, connection: Hashable, now: float) -> list[LiveBroker]:
        """Drop the brokers whose last registration was on this connection, and return them."""
        dead = [live for live in self._live.values() if live.speaker.connection == connection]
        for live in dead:
            self._remove(live)
            name = live.identity.broker_name
            if name not in self._names:
                self._holders.has_gone(name, now)
        return dead

    def _remove(self, live: LiveBroker, keep_name: str | None = None) -> None:
        """Drop a broker. Its name and queues go with the last broker of the name, unless kept."""
        identity = live.identity
        self._changes += 1
        self._live.pop(identity.address, None)
        name = self._names.get(identity.broker_name)
        if name is None:
            return
        if name.addresses.get(identity.broker_id) == identity.address:
            del name.addresses[identity.broker_id]
        if not name.addresses and identity.broker_name != keep_name:
            del self._names[identity.broker_name]
            self.places.leave(identity.broker_name, list(name.queues))

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Forget a topic, on one cluster or on all; return False if it was not known there."""
        names = [
            name
            for name in self.places.names_of(topic)
            if cluster is None or self._names[name].cluster == cluster
        ]
        for name in names:
            self.places.remove(topic, name)
        return bool(names)

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Add a topic's queues on known broker names (request 217); others are ignored.

        Raises:
            RegistrationRefused: the topic's name or a number is impossible.
            TableFull: too many topics.
        """
        limits.check_topic(topic)
        known = {queue.broker_name: queue for queue in queues if queue.broker_name in self._names}
        for queue in known.values():
            limits.check_queues(topic, queue)
        new = sum(1 for broker_name in known if topic not in self._names[broker_name].queues)
        self.places.check_room(int(topic not in self.places), new, new * len(topic))
        for broker_name, queue in known.items():
            self.places.put(topic, self._names[broker_name], queue)

    def set_write_wiped(self, broker_name: str, wiped: bool) -> int:
        """Take away or give back write permission on all queues of a broker name.

        It stays taken away, whatever the broker registers, until it is given back or the last
        broker of the name is gone.

        Returns:
            The number of its topics.
        """
        name = self._names.get(broker_name)
        if name is None:
            return 0
        name.is_write_wiped = wiped
        return len(name.queues)

    def route(self, topic: str) -> TopicRoute | None:
        """Return the brokers and queues of a topic, or None if no living broker serves it."""
        names = sorted(self.places.names_of(topic))
        return self._route(topic, names) if names else None

    def route_in_parts(self, topic: str) -> Iterator[TopicRoute]:
        """Yield the route of a topic in parts; none if no living broker serves it."""
        for piece in pieces(sorted(self.places.names_of(topic))):
            known = self._names
            names = [name for name in piece if name in known and topic in known[name].queues]
            yield self._route(topic, names)

    def _route(self, topic: str, names: list[str]) -> TopicRoute:
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
        return replace(queue, permission=queue.permission & ~PERMISSION_WRITE)

    def _broker_data(self, broker_name: str) -> BrokerData:
        name = self._names[broker_name]
        master = self.brokers.master_of(broker_name)
        direct = "" if master is None else master.direct_address
        return BrokerData(name.cluster, broker_name, dict(name.addresses), direct or None)

    def broker(self, broker_name: str) -> BrokerData | None:
        """Return the brokers of a name, or None."""
        return self._broker_data(broker_name) if broker_name in self._names else None

    def cluster_info(self) -> ClusterInfo:
        return last_of(self.cluster_info_in_steps())

    def cluster_info_in_steps(self) -> Generator[None, None, ClusterInfo]:
        """Return every broker by name, and the names of each cluster."""
        info = ClusterInfo()
        for piece in pieces(sorted(self._names)):
            for broker_name in piece:
                if (data := self.broker(broker_name)) is not None:
                    info.brokers[broker_name] = data
                    info.clusters.setdefault(data.cluster, []).append(broker_name)
            yield
        return info

    def has_topic(self, topic: str) -> bool:
        return bool(self.places.names_of(topic))

    def topics(self, wanted: Callable[[str, QueueData], bool] = _any) -> list[str]:
        return last_of(self.topics_in_steps(wanted))

    def topics_in_steps(
        self, wanted: Callable[[str, QueueData], bool] = _any
    ) -> Generator[None, None, list[str]]:
        """Return the topics that some broker serves, in steps of less than a millisecond.

        They are sorted, unless there are so many that this would take long. `wanted` decides for a
        cluster and the queues of a topic there whether the topic counts.
        """
        found: list[str] = []
        for topics in pieces(self.places.topics, _TOPICS_A_STEP):
            found += topics if wanted is _any else [one for one in topics if self._is(one, wanted)]
            yield
        return sorted(found) if len(found) <= _MAX_SORTED else found

    def _is(self, topic: str, wanted: Callable[[str, QueueData], bool]) -> bool:
        names = [self._names[name] for name in self.places.names_of(topic)]
        return any(wanted(name.cluster, name.queues[topic]) for name in names)
