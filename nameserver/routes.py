"""The route table: which brokers live, and which topics each serves.

A broker name has at most one address a broker id, so never two masters. A broker that registers as
master (id 0) takes the name over at once, unless the state version of its registration is lower
than the present master's. Our brokers put their Raft term there, so that a leader that was deposed
while it slept cannot take the name back; RocketMQ 5 uses it in the same way, RocketMQ 4 always
sends 0.

Anybody could tell a higher version. So the members of a group of ours register with a proof that
they alone share. It comes before brokers that have none: it takes its name and its address from
them, whatever they told. While it holds the name, and a few seconds longer, registrations without
the proof are refused (see `nameserver.holders`).
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, Final

from nameserver import limits
from nameserver.errors import (
    BrokerAlive,
    RegistrationRefused,
    StaleMaster,
    TableFull,
)
from nameserver.holders import Holders
from remoting.bodies.pieces import ROWS_A_STEP, last_of, pieces
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicRoute
from remoting.bodies.topic_config import PERMISSION_WRITE, DataVersion, TopicConfig
from remoting.net.address import parse_address

# RocketMQ's: four registrations may be missed before a broker is dropped.
BROKER_TIMEOUT_S: Final = 120.0

# A broker may ask for another timeout; shorter than its register period would make it flicker, and
# longer than an hour would keep the dead.
MIN_BROKER_TIMEOUT_S: Final = 10.0
MAX_BROKER_TIMEOUT_S: Final = 3600.0

_TOPICS_A_STEP: Final = 256

# Brokers that are dropped in one look.
_DROPPED_AT_ONCE: Final = 64

# To sort as many takes some milliseconds.
_MAX_SORTED: Final = 20_000


def _any(_cluster: str, _queues: QueueData) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Speaker:
    """The connection that a broker's request came on.

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
        timeout_s: how much each sign of life adds.
        speaker: where it registered last; when that connection closes, it is dropped.
        ha_address: address of its replication port; passed on to its slaves.
        filter_servers: passed on to clients.
        direct_address: where a leader serves that shares `identity.address` with the other members
            of its group, or ""; passed on to clients that know it.
        is_ending: it has said that it is about to end.
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


@dataclass(slots=True)
class _BrokerName:
    """The brokers of one name."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    queues: dict[str, QueueData] = field(default_factory=dict)  # by topic
    is_write_wiped: bool = False
    complete_lists: int = 0  # registrations that listed all topics


class RouteTable:
    """Everything the name server knows of brokers. Times are seconds on the caller's clock.

    Attributes:
        on_leaving: called when topics of brokers that are gone are left: call `forget_some`.
    """

    def __init__(self) -> None:
        self._names: dict[str, _BrokerName] = {}
        self._live: dict[str, LiveBroker] = {}  # by address
        self._topics: dict[str, set[str]] = {}  # the broker names of each topic
        self._places = 0  # topics, counted once for each broker name
        self._characters = 0  # of their names
        self._changes = 0
        # Broker names that are gone, with the topics that are not forgotten yet.
        self._leaving: deque[tuple[str, list[str]]] = deque()
        self.on_leaving: Callable[[], None] | None = None
        self._holders = Holders()

    @property
    def changes(self) -> int:
        """Grows with each change to what lists of topics and brokers say."""
        return self._changes

    @property
    def counts(self) -> tuple[int, int, int]:
        """Topics; topics counted once for each broker name; the characters of their names."""
        return len(self._topics), self._places, self._characters

    def register(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        *,
        speaker: Speaker,
        now: float,
        **more: Any,
    ) -> LiveBroker | None:
        """As `register_in_steps`, at once."""
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

        Topics count when the master tells them, or a slave while the name has no master. They are
        taken one after the other, until a later registration lists all topics of the name.

        Args:
            identity: the broker that registers.
            registration: its topics.
            speaker: where it came from.
            now: the time.
            complete: whether topics that are not listed are gone; otherwise they stay.
            ha_address: its replication port.
            direct_address: where it serves itself, when `identity.address` is that of its group.
            timeout_s: how long it lives without a sign of life; bounded.
            proof: what the members of its group share; "" if they share nothing.

        Returns:
            The master of its name when that is another broker, else None.

        Raises:
            StaleMaster: a newer master is known.
            NameHeld: the name is held by a group whose proof is another one.
            BrokerAlive: another host registered this address, and its connection is open.
            RegistrationRefused: a name or number of it cannot be meant.
            AddressMalformed: its address is not "host:port".
            TableFull: too many brokers or topics.
        """
        self._holders.check(identity.broker_name, proof, now)
        self._check(identity, registration, speaker, ha_address, direct_address, proof)
        yield from self._check_topics(identity.broker_name, registration.topics)
        self._holders.check(identity.broker_name, proof, now)
        self._check(identity, registration, speaker, ha_address, direct_address, proof)
        if self._holders.is_new(identity.broker_name, proof):
            self._drop_others(identity)
        self._changes += 1
        name = self._names.get(identity.broker_name)
        if name is None:
            name = self._names[identity.broker_name] = _BrokerName(identity.cluster)
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
        return None if identity.broker_id == MASTER_ID else self.master_of(identity.broker_name)

    def _drop_others(self, identity: BrokerIdentity) -> None:
        """Drop the brokers of a name, before a group takes it from them."""
        for live in list(self._live.values()):
            if live.identity.broker_name == identity.broker_name:
                self._remove(live, keep_name=identity.broker_name)

    def _check(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        speaker: Speaker,
        ha_address: str,
        direct_address: str,
        proof: str,
    ) -> None:
        """Refuse what cannot be taken, before anything is changed."""
        _check_identity(identity)
        if direct_address:
            limits.check_text("directAddr", direct_address, limits.MAX_ADDRESS_CHARACTERS)
            parse_address(direct_address)
        if ha_address:
            limits.check_text("haServerAddr", ha_address, limits.MAX_ADDRESS_CHARACTERS)
        if len(registration.filter_servers) > limits.MAX_FILTER_SERVERS:
            raise TableFull("filter servers of a broker", limits.MAX_FILTER_SERVERS)
        for server in registration.filter_servers:
            limits.check_text("filter server", server, limits.MAX_ADDRESS_CHARACTERS)
        live = self._live.get(identity.address)
        if live is None:
            if len(self._live) >= limits.MAX_BROKERS:
                raise TableFull("brokers", limits.MAX_BROKERS)
        elif self._is_held(live, identity.broker_name) or not (
            _may_speak_for(speaker, live)
            or _follows(registration, direct_address, live)
            or self._holders.is_new(live.identity.broker_name, proof)
        ):
            raise BrokerAlive(identity.address)
        if self._holders.is_new(identity.broker_name, proof):
            _check_state_version(registration.data_version.state_version, limits.MAX_STATE_VERSION)
            return  # whatever others told of the name
        name = self._names.get(identity.broker_name)
        if (
            name is not None
            and name.cluster != identity.cluster
            and any(address != identity.address for address in name.addresses.values())
        ):
            raise RegistrationRefused(
                f"broker name {identity.broker_name:.80} is in use in cluster {name.cluster:.80}: "
                "choose another, or end its brokers first"
            )
        self._check_version(identity, registration.data_version.state_version, direct_address)

    def _is_held(self, live: LiveBroker, broker_name: str) -> bool:
        """Whether an address is that of a group with a proof, and `broker_name` another one."""
        held = live.identity.broker_name
        return held in self._holders and held != broker_name

    def _check_version(self, identity: BrokerIdentity, told: int, direct_address: str) -> None:
        """Refuse the state version of a stale master, and one that no election can reach."""
        highest = limits.MAX_STATE_VERSION
        master = self.master_of(identity.broker_name)
        if (
            identity.broker_id == MASTER_ID
            and master is not None
            and (master.identity.address, master.direct_address)
            != (identity.address, direct_address)
        ):
            known = master.data_version.state_version
            if told < known:
                raise StaleMaster(
                    identity.broker_name, identity.address, told, master.identity.address, known
                )
            highest = min(highest, known + limits.MAX_STATE_VERSION_STEP)
        _check_state_version(told, highest)

    def _check_topics(
        self, broker_name: str, topics: Mapping[str, TopicConfig]
    ) -> Generator[None, None, None]:
        """Refuse topics that cannot be meant, or that are too many."""
        name = self._names.get(broker_name)
        held = {} if name is None else name.queues
        new_topics = new_places = new_characters = 0
        for number, (topic, config) in enumerate(topics.items(), 1):
            if number % _TOPICS_A_STEP == 0:
                yield
            if topic not in held:
                limits.check_topic(topic)
                new_places += 1
                new_characters += len(topic)
                new_topics += topic not in self._topics
            _check_numbers(
                topic,
                config.read_queue_count,
                config.write_queue_count,
                config.permission,
                config.topic_system_flag,
            )
        self._check_room(new_topics, new_places, new_characters)

    def _check_room(self, topics: int, places: int, characters: int) -> None:
        """Refuse as many more when the tables would have too many."""
        if len(self._topics) + topics > limits.MAX_TOPICS:
            raise TableFull("topics", limits.MAX_TOPICS)
        if self._places + places > limits.MAX_TOPIC_PLACES:
            raise TableFull("topics of all broker names", limits.MAX_TOPIC_PLACES)
        if self._characters + characters > limits.MAX_TOPIC_CHARACTERS_IN_ALL:
            raise TableFull("characters of topics", limits.MAX_TOPIC_CHARACTERS_IN_ALL)

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
                self._forget_queues(topic, broker_name)
                continue
            queue = QueueData(
                broker_name,
                config.read_queue_count,
                config.write_queue_count,
                config.permission,
                config.topic_system_flag,
            )
            self._put_queues(topic, name, queue)

    def _put_queues(self, topic: str, name: _BrokerName, queue: QueueData) -> None:
        """Set the queues that a topic has on a broker name."""
        if topic not in name.queues:
            self._places += 1
            self._characters += len(topic)
            self._topics.setdefault(topic, set()).add(queue.broker_name)
        name.queues[topic] = queue

    def unregister(self, identity: BrokerIdentity, speaker: Speaker) -> bool:
        """Drop a broker that says good-bye; false when it was not known as that.

        Raises:
            BrokerAlive: another host registered this address, and its connection is open; or
                another connection, where its name is held by a proof.
        """
        live = self._live.get(identity.address)
        if live is None or live.identity.broker_name != identity.broker_name:
            return False
        held = identity.broker_name in self._holders and speaker != live.speaker
        if held or not _may_speak_for(speaker, live):
            raise BrokerAlive(identity.address)
        self._remove(live)
        return True

    def refresh(self, address: str, speaker: Speaker, now: float) -> bool:
        """Note a sign of life of a broker; false when it is not known, or another host speaks."""
        live = self._live.get(address)
        if live is None or not _may_speak_for(speaker, live):
            return False
        live.expires_at = now + live.timeout_s
        return True

    def ends(self, address: str, connection: Hashable) -> None:
        """A broker says that it is about to end; it stays until its connection closes.

        A leader of a group shares its address with the next one, so only the connection tells which
        of them speaks.
        """
        live = self._live.get(address)
        if live is not None and live.speaker.connection == connection:
            live.is_ending = True

    def expire(self, now: float) -> list[LiveBroker]:
        """Drop some of the brokers whose time has come, and return them.

        If more are left, `next_expiry` has passed.
        """
        silent = (live for live in self._live.values() if live.expires_at <= now)
        dead = list(islice(silent, _DROPPED_AT_ONCE))
        for live in dead:
            self._remove(live)
        self._holders.expire(now)
        return dead

    def next_expiry(self) -> float | None:
        """When the next broker would be dropped, or None when none lives."""
        return min((live.expires_at for live in self._live.values()), default=None)

    def connection_closed(self, connection: Hashable, now: float) -> list[LiveBroker]:
        """Drop the brokers that registered last on a connection that closed, and return them."""
        dead = [live for live in self._live.values() if live.speaker.connection == connection]
        for live in dead:
            self._remove(live)
            name = live.identity.broker_name
            if name not in self._names:
                self._holders.has_gone(name, now)
        return dead

    def _remove(self, live: LiveBroker, keep_name: str | None = None) -> None:
        """Drop a broker; its name and queues go with the last of the name, unless kept."""
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
            is_first = not self._leaving
            self._leaving.append((identity.broker_name, list(name.queues)))
            if is_first:  # not with each of many that leave together
                self.forget_some()
            if self._leaving and self.on_leaving is not None:
                self.on_leaving()

    def forget_some(self) -> bool:
        """Forget some topics of brokers that are gone, a millisecond's worth; whether some are
        left. No route has them any more: what is left is in the counts and in lists of topics.
        """
        room = _TOPICS_A_STEP
        while self._leaving and room > 0:
            broker_name, topics = self._leaving[0]
            now, topics[-room:] = topics[-room:], []
            room -= len(now)
            for topic in now:
                self._forget_place(topic, broker_name)
            if not topics:
                self._leaving.popleft()
        return bool(self._leaving)

    def _forget_queues(self, topic: str, broker_name: str) -> None:
        """Forget that a topic lives on a broker name."""
        if self._names[broker_name].queues.pop(topic, None) is None:
            return
        self._forget_place(topic, broker_name)

    def _forget_place(self, topic: str, broker_name: str) -> None:
        self._changes += 1
        self._places -= 1
        self._characters -= len(topic)
        names = self._topics.get(topic)
        name = self._names.get(broker_name)
        if names is not None and (name is None or topic not in name.queues):
            names.discard(broker_name)
            if not names:
                del self._topics[topic]

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Forget a topic, on one cluster or on all; false when it was not known there."""
        names = [
            name
            for name in self._names_of(topic)
            if cluster is None or self._names[name].cluster == cluster
        ]
        for name in names:
            self._forget_queues(topic, name)
        return bool(names)

    def add_queues(self, topic: str, queues: list[QueueData]) -> None:
        """Add a topic's queues on broker names that are known (request 217); others are left out.

        Raises:
            RegistrationRefused: the topic's name or a number cannot be meant.
            TableFull: too many topics.
        """
        limits.check_topic(topic)
        known = {queue.broker_name: queue for queue in queues if queue.broker_name in self._names}
        for queue in known.values():
            _check_numbers(
                topic,
                queue.read_queue_count,
                queue.write_queue_count,
                queue.permission,
                queue.topic_system_flag,
            )
        new = sum(1 for broker_name in known if topic not in self._names[broker_name].queues)
        self._check_room(int(topic not in self._topics), new, new * len(topic))
        for broker_name, queue in known.items():
            self._changes += 1
            self._put_queues(topic, self._names[broker_name], queue)

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
        names = sorted(self._names_of(topic))
        return self._route(topic, names) if names else None

    def is_long(self, topic: str) -> bool:
        """Whether so many brokers serve a topic that its route is better told in parts."""
        return len(self._topics.get(topic, ())) > ROWS_A_STEP and self.has_topic(topic)

    def route_in_parts(self, topic: str) -> Iterator[TopicRoute]:
        """As `route`, in parts that follow one another; none when no living broker serves it."""
        for piece in pieces(sorted(self._names_of(topic))):
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

    def _names_of(self, topic: str) -> list[str]:
        """The broker names that serve a topic."""
        known = self._names
        found = self._topics.get(topic, ())
        return [name for name in found if name in known and topic in known[name].queues]

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
        master = self.master_of(broker_name)
        direct = "" if master is None else master.direct_address
        return BrokerData(name.cluster, broker_name, dict(name.addresses), direct or None)

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
        """As `cluster_info_in_steps`, at once."""
        return last_of(self.cluster_info_in_steps())

    def cluster_info_in_steps(self) -> Generator[None, None, ClusterInfo]:
        """Every broker by name, and the names of each cluster."""
        info = ClusterInfo()
        for piece in pieces(sorted(self._names)):
            for broker_name in piece:
                if (data := self.broker(broker_name)) is not None:
                    info.brokers[broker_name] = data
                    info.clusters.setdefault(data.cluster, []).append(broker_name)
            yield
        return info

    def has_topic(self, topic: str) -> bool:
        """Whether some broker serves a topic."""
        return bool(self._names_of(topic))

    def topics(self, wanted: Callable[[str, QueueData], bool] = _any) -> list[str]:
        """As `topics_in_steps`, at once."""
        return last_of(self.topics_in_steps(wanted))

    def topics_in_steps(
        self, wanted: Callable[[str, QueueData], bool] = _any
    ) -> Generator[None, None, list[str]]:
        """The topics that some broker serves, in steps of less than a millisecond.

        They are sorted, unless there are so many that this would take long.

        Args:
            wanted: whether a topic counts that a cluster has with these queues.
        """
        found: list[str] = []
        for topics in pieces(self._topics, _TOPICS_A_STEP):
            found += topics if wanted is _any else [one for one in topics if self._is(one, wanted)]
            yield
        return sorted(found) if len(found) <= _MAX_SORTED else found

    def _is(self, topic: str, wanted: Callable[[str, QueueData], bool]) -> bool:
        names = [self._names[name] for name in self._names_of(topic)]
        return any(wanted(name.cluster, name.queues[topic]) for name in names)


def _may_speak_for(speaker: Speaker, live: LiveBroker) -> bool:
    """Whether a request may speak for a broker: on its connection, or from the same host.

    The same host, since a broker whose connection broke dials again before we notice that.
    """
    return speaker == live.speaker or speaker.host == live.speaker.host


def _follows(registration: BrokerRegistration, direct_address: str, live: LiveBroker) -> bool:
    """Whether the next leader of a group registers the address that all its members share."""
    return (
        bool(direct_address and live.direct_address)
        and registration.data_version.state_version > live.data_version.state_version
    )


def _check_state_version(told: int, highest: int) -> None:
    """Refuse one that no election reaches."""
    if not 0 <= told <= highest:
        raise RegistrationRefused(
            f"state version {told} is not from 0 to {highest}: register with the present term"
        )


def _check_identity(identity: BrokerIdentity) -> None:
    """Refuse an identity that makes no sense."""
    limits.check_text("brokerName", identity.broker_name, limits.MAX_BROKER_NAME_CHARACTERS)
    limits.check_text("clusterName", identity.cluster, limits.MAX_CLUSTER_CHARACTERS)
    if not 0 <= identity.broker_id <= limits.MAX_BROKER_ID:
        raise RegistrationRefused("brokerId must not be negative: set it")
    limits.check_text("brokerAddr", identity.address, limits.MAX_ADDRESS_CHARACTERS)
    parse_address(identity.address)


def _check_numbers(topic: str, read: int, write: int, permission: int, system_flag: int) -> None:
    """Refuse numbers of a topic that would make clients hold as many queues."""
    if not (
        0 <= read <= limits.MAX_QUEUES
        and 0 <= write <= limits.MAX_QUEUES
        and limits.MIN_FLAGS <= permission <= limits.MAX_FLAGS
        and limits.MIN_FLAGS <= system_flag <= limits.MAX_FLAGS
    ):
        raise RegistrationRefused(
            f"topic {topic:.127}: {read} and {write} queues, permission {permission}, system flag "
            f"{system_flag}: send 0 to {limits.MAX_QUEUES} queues and flags of 32 bits"
        )
