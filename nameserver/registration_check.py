"""Refuses registrations that the route table must not take."""

from collections.abc import Generator, Mapping

from nameserver import limits
from nameserver.brokers import BrokerIdentity, BrokerTable, LiveBroker, Speaker
from nameserver.errors import BrokerAlive, RegistrationRefused, StaleMaster, TableFull
from nameserver.holders import Holders
from nameserver.topic_places import TopicPlaces
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import MASTER_ID
from remoting.bodies.topic_config import TopicConfig
from remoting.net.address import parse_address

# Topics checked in one step, which takes less than a millisecond.
_TOPICS_A_STEP = 256


class RegistrationCheck:
    """Compares registrations with the tables. It changes nothing but forgets expired holders."""

    def __init__(self, brokers: BrokerTable, places: TopicPlaces, holders: Holders) -> None:
        self._brokers = brokers
        self._places = places
        self._holders = holders

    def check_broker(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        speaker: Speaker,
        ha_address: str,
        direct_address: str,
        proof: str,
        now: float,
    ) -> None:
        """Check everything but the topics. Raises as `RouteTable.register_in_steps`."""
        self._holders.check(identity.broker_name, proof, now)
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
        live = self._brokers.by_address.get(identity.address)
        if live is None:
            if len(self._brokers.by_address) >= limits.MAX_BROKERS:
                raise TableFull("brokers", limits.MAX_BROKERS)
        elif self._is_held(live, identity.broker_name) or not (
            live.may_be_changed_by(speaker)
            or _follows(registration, direct_address, live)
            or self._holders.is_new(live.identity.broker_name, proof)
        ):
            raise BrokerAlive(identity.address)
        if self._holders.is_new(identity.broker_name, proof):
            _check_state_version(registration.data_version.state_version, limits.MAX_STATE_VERSION)
            return  # a group with a proof replaces brokers without one
        name = self._brokers.by_name.get(identity.broker_name)
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
        """Return whether the address belongs to a group with a proof and another name."""
        held = live.identity.broker_name
        return held in self._holders and held != broker_name

    def _check_version(self, identity: BrokerIdentity, told: int, direct_address: str) -> None:
        """Refuse the state version of a stale master, and one that no election can reach."""
        highest = limits.MAX_STATE_VERSION
        master = self._brokers.master_of(identity.broker_name)
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

    def check_topics(
        self, broker_name: str, topics: Mapping[str, TopicConfig]
    ) -> Generator[None, None, None]:
        """Check names, numbers and the room for topics, in steps."""
        name = self._brokers.by_name.get(broker_name)
        held = {} if name is None else name.queues
        new_topics = new_places = new_characters = 0
        for number, (topic, config) in enumerate(topics.items(), 1):
            if number % _TOPICS_A_STEP == 0:
                yield
            if topic not in held:
                limits.check_topic(topic)
                new_places += 1
                new_characters += len(topic)
                new_topics += topic not in self._places
            limits.check_queues(topic, config)
        self._places.check_room(new_topics, new_places, new_characters)


def _follows(registration: BrokerRegistration, direct_address: str, live: LiveBroker) -> bool:
    """Return whether the next leader of a group registers the address that its members share."""
    return (
        bool(direct_address and live.direct_address)
        and registration.data_version.state_version > live.data_version.state_version
    )


def _check_state_version(told: int, highest: int) -> None:
    if not 0 <= told <= highest:
        raise RegistrationRefused(
            f"state version {told} is not from 0 to {highest}: register with the present term"
        )


def _check_identity(identity: BrokerIdentity) -> None:
    limits.check_text("brokerName", identity.broker_name, limits.MAX_BROKER_NAME_CHARACTERS)
    limits.check_text("clusterName", identity.cluster, limits.MAX_CLUSTER_CHARACTERS)
    if not 0 <= identity.broker_id <= limits.MAX_BROKER_ID:
        raise RegistrationRefused("brokerId must not be negative: set it")
    limits.check_text("brokerAddr", identity.address, limits.MAX_ADDRESS_CHARACTERS)
    parse_address(identity.address)
