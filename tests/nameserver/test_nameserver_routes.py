"""The route table: who is master, who is dropped when, and what the topics become."""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bench.costs.full_nameserver import EVERYWHERE, FullNameServer, Routes
from nameserver import limits
from nameserver.brokers import BrokerIdentity, Speaker
from nameserver.errors import BrokerAlive, RegistrationRefused, StaleMaster, TableFull
from nameserver.limits import MAX_SETTINGS, MAX_VALUE_CHARACTERS
from nameserver.routes import RouteTable
from nameserver.settings import SettingTable
from remoting.bodies.pieces import last_of
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.route import QueueData, encode_route
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.net.errors import AddressMalformed
from remoting.wire.command import Command
from tests.examples import examples

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def identity(address: str, broker_id: int, name: str = "b", cluster: str = "cl") -> BrokerIdentity:
    return BrokerIdentity(cluster, name, broker_id, address)


def speaker(address: str) -> Speaker:
    """A connection from the host of a broker's address."""
    return Speaker(address, address.partition(":")[0])


def told(*topics: str, term: int = 0, counter: int = 0, queues: int = 4) -> BrokerRegistration:
    return BrokerRegistration(
        {topic: TopicConfig(topic, queues, queues) for topic in topics},
        DataVersion(counter, 0, term),
    )


def register(
    table: RouteTable,
    address: str,
    broker_id: int,
    registration: BrokerRegistration | None = None,
    *,
    now: float = 0.0,
    name: str = "b",
    complete: bool = False,
    timeout_s: float = 120.0,
) -> None:
    table.register(
        identity(address, broker_id, name),
        registration or told("T"),
        speaker=speaker(address),
        now=now,
        complete=complete,
        timeout_s=timeout_s,
    )


def addresses(table: RouteTable, topic: str = "T") -> dict[int, str]:
    route = table.route(topic)
    return {} if route is None else dict(route.brokers[0].addresses)


def test_a_topic_is_found_where_its_broker_registered() -> None:
    table = RouteTable()
    register(table, A, 0)
    route = table.route("T")
    assert route is not None
    assert route.queues == [QueueData("b", 4, 4, 6)]
    assert addresses(table) == {0: A}
    assert table.route("U") is None
    assert table.topics() == ["T"]


def test_a_new_master_takes_the_place_of_the_old_one_at_once() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", term=1))
    register(table, B, 2, told("T", term=1))
    register(table, B, 0, told("T", term=2))
    assert addresses(table) == {0: B}
    register(table, A, 1, told("T", term=2))
    assert addresses(table) == {0: B, 1: A}


def test_a_deposed_master_cannot_take_the_name_back() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", term=1))
    register(table, B, 0, told("T", term=2))
    with pytest.raises(StaleMaster, match="older than 2") as caught:
        register(table, A, 0, told("T", "U", term=1))
    assert caught.value.master_address == B
    assert addresses(table) == {0: B}
    assert table.route("U") is None


def test_of_two_java_masters_without_state_versions_the_last_word_counts() -> None:
    table = RouteTable()
    register(table, A, 0)
    register(table, B, 0)
    register(table, A, 0)
    assert addresses(table) == {0: A}
    assert table.brokers.by_address.get(B) is None


def test_a_master_that_becomes_a_slave_leaves_the_name_without_a_master() -> None:
    table = RouteTable()
    register(table, A, 0)
    register(table, A, 1)
    assert addresses(table) == {1: A}
    assert table.brokers.master_of("b") is None


@pytest.mark.feature("F5")
def test_a_slave_is_told_its_master() -> None:
    table = RouteTable()
    assert (
        table.register(
            identity(A, 0),
            told("T"),
            speaker=Speaker(1, "10.0.0.1"),
            now=0,
            ha_address="10.0.0.1:10912",
        )
        is None
    )
    master = table.register(identity(B, 1), told("T"), speaker=Speaker(2, "10.0.0.1"), now=0)
    assert master is not None
    assert (master.identity.address, master.ha_address) == (A, "10.0.0.1:10912")


def test_topics_of_a_slave_count_only_while_there_is_no_master() -> None:
    table = RouteTable()
    register(table, B, 1, told("T", "OLD"))
    assert table.topics() == ["OLD", "T"]
    register(table, A, 0, told("T", "NEW"), complete=True)
    register(table, B, 1, told("T", "OLD"))
    assert table.topics() == ["NEW", "T"]


def test_a_single_topic_of_a_broker_not_yet_known_is_taken() -> None:
    table = RouteTable()
    register(table, A, 0, told("only"))
    assert addresses(table, "only") == {0: A}


def test_a_registration_that_is_not_complete_keeps_the_other_topics() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", "U"))
    register(table, A, 0, told("T", queues=9))
    assert table.topics() == ["T", "U"]
    route = table.route("T")
    assert route is not None
    assert route.queues[0].read_queue_count == 9


@pytest.mark.feature("F2")
def test_a_complete_registration_forgets_the_topics_it_does_not_list() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", "U"))
    register(table, C, 0, told("U"), name="other")
    register(table, A, 0, told("T"), complete=True)
    assert table.topics() == ["T", "U"]
    route = table.route("U")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["other"]


def test_a_broker_is_dropped_when_its_time_comes_and_not_before() -> None:
    table = RouteTable()
    register(table, A, 0, now=1000)
    assert table.next_expiry() == 1120
    assert table.expire(1119.9) == []
    assert [live.identity.address for live in table.expire(1120)] == [A]
    assert table.route("T") is None
    assert table.topics() == []
    assert table.next_expiry() is None


def test_of_many_brokers_that_fall_silent_some_are_dropped_at_once_and_the_rest_at_once_after() -> (
    None
):
    table = RouteTable()
    addresses = [f"10.0.0.1:{port}" for port in range(10_000, 10_150)]
    for address in addresses:
        register(table, address, 0, name=address)
    dropped: list[str] = []
    while (expiry := table.next_expiry()) is not None and expiry <= 1e6:
        some = [live.identity.address for live in table.expire(1e6)]
        assert 0 < len(some) <= 64
        dropped += some
    assert dropped == addresses


def test_a_sign_of_life_adds_a_full_timeout() -> None:
    table = RouteTable()
    register(table, A, 0)
    assert table.refresh(A, speaker(A), 100)
    assert table.expire(200) == []
    assert not table.refresh(B, speaker(B), 100)


@pytest.mark.parametrize(("wanted", "given"), [(1.0, 10.0), (30.0, 30.0), (1e9, 3600.0)])
def test_the_timeout_a_broker_asks_for_is_bounded(wanted: float, given: float) -> None:
    table = RouteTable()
    register(table, A, 0, timeout_s=wanted)
    assert table.next_expiry() == given


def test_slaves_and_topics_stay_while_the_master_is_gone() -> None:
    table = RouteTable()
    register(table, A, 0)
    register(table, B, 1)
    assert table.unregister(identity(A, 0), speaker(A))
    assert addresses(table) == {1: B}
    assert not table.unregister(identity(A, 0), speaker(A))


@pytest.mark.feature("F3")
def test_only_the_last_connection_a_broker_registered_on_drops_it() -> None:
    table = RouteTable()
    for connection in ("old", "new"):
        table.register(identity(A, 0), told("T"), speaker=Speaker(connection, "10.0.0.1"), now=0)
    assert table.connection_closed("old", 0.0) == []
    assert addresses(table) == {0: A}
    assert len(table.connection_closed("new", 0.0)) == 1
    assert table.route("T") is None


@pytest.mark.feature("F6")
def test_write_permission_stays_taken_away_until_it_is_given_back() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", "U"))
    assert table.set_write_wiped("b", True) == 2
    register(table, A, 0, told("T", "U", counter=1))
    route = table.route("T")
    assert route is not None
    assert route.queues[0].permission == 4
    assert table.set_write_wiped("b", False) == 2
    route = table.route("T")
    assert route is not None
    assert route.queues[0].permission == 6
    assert table.set_write_wiped("unknown", True) == 0


def test_a_topic_is_deleted_on_one_cluster_or_on_all() -> None:
    table = RouteTable()
    register(table, A, 0)
    table.register(identity(B, 0, "c", "cl2"), told("T"), speaker=Speaker(1, "10.0.0.1"), now=0)
    assert table.topics(lambda cluster, _queues: cluster == "cl2") == ["T"]
    assert table.delete_topic("T", "cl2")
    route = table.route("T")
    assert route is not None
    assert [broker.broker_name for broker in route.brokers] == ["b"]
    assert table.delete_topic("T")
    assert not table.delete_topic("T")
    assert table.topics() == []


def test_queues_are_added_to_brokers_that_are_known() -> None:
    table = RouteTable()
    register(table, A, 0)
    table.add_queues("N", [QueueData("b", 1, 1, 6), QueueData("unknown", 1, 1, 6)])
    route = table.route("N")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]


def test_a_broker_that_changes_its_name_leaves_nothing_behind() -> None:
    table = RouteTable()
    register(table, A, 0, told("T"), name="before")
    register(table, A, 0, told("T"), name="after")
    assert list(table.cluster_info().brokers) == ["after"]
    assert table.topics() == ["T"]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(identity(A, 0), broker_name=""),
        replace(identity(A, 0), cluster=""),
        identity(A, -1),
    ],
)
def test_an_identity_that_makes_no_sense_is_refused(wrong: BrokerIdentity) -> None:
    table = RouteTable()
    with pytest.raises(RegistrationRefused):
        table.register(wrong, told("T"), speaker=Speaker(1, "10.0.0.1"), now=0)
    assert table.topics() == []


def test_an_address_clients_could_not_use_is_refused() -> None:
    with pytest.raises(AddressMalformed):
        register(RouteTable(), "nowhere", 0)


def test_the_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TOPICS", 2)
    monkeypatch.setattr(limits, "MAX_BROKERS", 1)
    table = RouteTable()
    register(table, A, 0, told("T", "U"))
    with pytest.raises(TableFull, match="topics"):
        register(table, A, 0, told("T", "V"))
    with pytest.raises(TableFull, match="topics"):
        table.add_queues("V", [QueueData("b", 1, 1, 6)])
    with pytest.raises(TableFull, match="brokers"):
        register(table, B, 1, told("T"))
    assert table.topics() == ["T", "U"]


def test_settings_are_kept_by_namespace_and_bounded() -> None:
    table = SettingTable()
    table.put("n", "k", "v")
    assert table.get("n", "k") == "v"
    assert table.all_of("n") == {"k": "v"}
    assert table.delete("n", "k")
    assert not table.delete("n", "k")
    with pytest.raises(TableFull, match="characters"):
        table.put("n", "k", "v" * MAX_VALUE_CHARACTERS)
    for number in range(MAX_SETTINGS):
        table.put("n", str(number), "v")
    table.put("n", "0", "again")
    with pytest.raises(TableFull, match="settings"):
        table.put("m", "one more", "v")
    assert table.get("m", "one more") is None


def test_no_other_host_speaks_for_a_broker_that_lives() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", term=1))
    other = Speaker("other", "10.0.0.66")
    with pytest.raises(BrokerAlive, match="registered by another host"):
        table.register(identity(A, 0), told("U", term=9), speaker=other, now=0)
    with pytest.raises(BrokerAlive):
        table.unregister(identity(A, 0), other)
    assert not table.refresh(A, other, 100)
    assert table.next_expiry() == 120
    assert table.topics() == ["T"]
    table.connection_closed(A, 0.0)
    table.register(identity(A, 0), told("U"), speaker=other, now=0)
    assert table.topics() == ["U"]


def test_a_broker_speaks_on_a_new_connection_from_its_own_host() -> None:
    table = RouteTable()
    register(table, A, 0)
    again = Speaker("dialled again", "10.0.0.1")
    assert table.refresh(A, again, 100)
    table.register(identity(A, 0), told("T"), speaker=again, now=0)
    assert table.connection_closed(A, 0.0) == []
    assert table.unregister(identity(A, 0), Speaker("a tool", "10.0.0.1"))


def test_a_state_version_that_no_election_can_reach_keeps_no_leader_out() -> None:
    table = RouteTable()
    register(table, A, 0, told("T", term=7))
    for version in ((1 << 63) - 1, limits.MAX_STATE_VERSION, 8 + limits.MAX_STATE_VERSION_STEP, -1):
        with pytest.raises((RegistrationRefused, StaleMaster)):
            register(table, B, 0, told("T", term=version))
        with pytest.raises(RegistrationRefused, match="is not from 0 to"):
            register(table, B, 0, told("T", term=limits.MAX_STATE_VERSION + 1), name="new")
    register(table, B, 0, told("T", term=8))
    assert addresses(table) == {0: B}
    register(table, C, 0, told("T", term=8 + limits.MAX_STATE_VERSION_STEP))
    assert addresses(table) == {0: C}


def test_a_broker_of_another_cluster_does_not_take_a_name_in_use() -> None:
    table = RouteTable()
    register(table, A, 0)
    with pytest.raises(RegistrationRefused, match="in use in cluster cl"):
        table.register(identity(B, 0, cluster="other"), told("U"), speaker=speaker(B), now=0)
    table.register(identity(A, 0, cluster="other"), told("T"), speaker=speaker(A), now=0)
    assert table.cluster_info().clusters == {"other": ["b"]}


@pytest.mark.parametrize(
    "topic",
    ["", "x" * 128, "%RETRY%" + "g" * 256, "a\nb", "a\x7f", "\ud800", "x" * 10_000_000],
)
def test_a_topic_that_rocketmq_would_not_take_is_refused(topic: str) -> None:
    table = RouteTable()
    register(table, A, 0, told("x" * 127, "%RETRY%" + "g" * 255))
    with pytest.raises(RegistrationRefused) as caught:
        register(table, A, 0, told("T", topic))
    assert len(str(caught.value)) < 400
    with pytest.raises(RegistrationRefused):
        table.add_queues(topic, [QueueData("b", 1, 1, 6)])
    assert table.route("T") is None


@pytest.mark.parametrize(
    ("changes", "filter_servers", "ha_address"),
    [
        ({"broker_name": "b" * 256}, [], ""),
        ({"cluster": "c" * 256}, [], ""),
        ({"cluster": "c\n"}, [], ""),
        ({"broker_id": 1 << 63}, [], ""),
        ({"address": "h" * 300 + ":1"}, [], ""),
        ({}, ["f:1"] * 17, ""),
        ({}, ["f" * 300], ""),
        ({}, [], "h" * 300),
    ],
)
def test_each_text_of_a_registration_is_bounded(
    changes: dict[str, Any], filter_servers: list[str], ha_address: str
) -> None:
    table = RouteTable()
    with pytest.raises((RegistrationRefused, TableFull)):
        table.register(
            replace(identity(A, 0), **changes),
            replace(told("T"), filter_servers=filter_servers),
            speaker=speaker(A),
            now=0,
            ha_address=ha_address,
        )
    assert table.topics() == []
    assert table.cluster_info().clusters == {}


@pytest.mark.parametrize(
    "numbers", [(-1, 1, 6, 0), (1, 1 << 62, 6, 0), (1, 1, 1 << 31, 0), (1, 1, 6, 1 << 31)]
)
def test_numbers_that_would_fill_the_memory_of_clients_are_refused(
    numbers: tuple[int, int, int, int],
) -> None:
    read, write, permission, flag = numbers
    table = RouteTable()
    register(table, A, 0, told("T"))
    config = TopicConfig("U", read, write, permission, topic_system_flag=flag)
    with pytest.raises(RegistrationRefused, match="topic U"):
        register(table, A, 0, BrokerRegistration({"U": config}, DataVersion()))
    with pytest.raises(RegistrationRefused, match="topic U"):
        table.add_queues("U", [QueueData("b", read, write, permission, flag)])
    assert table.topics() == ["T"]


def test_the_topics_of_all_broker_names_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_TOPIC_PLACES", 4)
    monkeypatch.setattr(limits, "MAX_TOPIC_CHARACTERS_IN_ALL", 9)
    table = RouteTable()
    register(table, A, 0, told("T", "U"))
    register(table, B, 0, told("T", "U"), name="c")
    with pytest.raises(TableFull, match="topics of all broker names"):
        register(table, C, 0, told("T"), name="d")
    with pytest.raises(TableFull, match="topics of all broker names"):
        table.add_queues("V", [QueueData("c", 1, 1, 6)])
    table.connection_closed(B, 0.0)
    with pytest.raises(TableFull, match="characters"):
        register(table, C, 0, told("T", "long-topic"), name="d")
    register(table, C, 0, told("T", "short"), name="d")


def test_settings_are_bounded_together() -> None:
    table = SettingTable()
    value = "v" * (MAX_VALUE_CHARACTERS - 4)
    for number in range(64):
        table.put("n", f"{number:03}", value)
    with pytest.raises(TableFull, match="characters of settings"):
        table.put("n", "one", "v")
    table.put("n", "000", "v")
    table.put("n", "one", "v")
    table.delete("n", "001")
    table.put("n", "two", value)


def host(number: int) -> Speaker:
    """The one connection of one host."""
    return Speaker(number, f"10.0.0.{number}")


class RouteTableMachine(RuleBasedStateMachine):
    """Any sequence of events leaves the table consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now = 0.0

    @rule(
        address=st.sampled_from([A, B, C]),
        broker_id=st.integers(0, 2),
        name=st.sampled_from(["b", "c"]),
        term=st.integers(0, 3),
        topics=st.sets(st.sampled_from("TUV")),
        connection=st.integers(0, 2),
        complete=st.booleans(),
    )
    def register(
        self,
        address: str,
        broker_id: int,
        name: str,
        term: int,
        topics: set[str],
        connection: int,
        complete: bool,
    ) -> None:
        before = self.table.brokers.master_of(name)
        is_stale = (
            broker_id == 0
            and before is not None
            and before.identity.address != address
            and term < before.data_version.state_version
        )
        live = self.table.brokers.by_address.get(address)
        is_foreign = live is not None and live.speaker != host(connection)
        try:
            self.table.register(
                identity(address, broker_id, name),
                told(*topics, term=term),
                speaker=host(connection),
                now=self.now,
                complete=complete,
            )
        except StaleMaster:
            assert is_stale
            return
        except BrokerAlive:
            assert is_foreign
            assert self.table.brokers.by_address.get(address) is live
            return
        assert not is_stale
        assert not is_foreign
        data = self.table.broker(name)
        assert data is not None
        assert data.addresses[broker_id] == address
        if broker_id == 0 and complete:
            assert set(self.table.topics()) >= topics

    @rule(for_s=st.floats(0, 130))
    def pass_time(self, for_s: float) -> None:
        self.now += for_s
        self.table.expire(self.now)

    @rule(connection=st.integers(0, 2))
    def close(self, connection: int) -> None:
        self.table.connection_closed(connection, 0.0)

    @rule(
        address=st.sampled_from([A, B, C]),
        name=st.sampled_from(["b", "c"]),
        connection=st.integers(0, 2),
    )
    def unregister(self, address: str, name: str, connection: int) -> None:
        before = self.table.brokers.by_address.get(address)
        with suppress(BrokerAlive):
            self.table.unregister(identity(address, 0, name), host(connection))
        if before is not None and before.speaker != host(connection):
            assert self.table.brokers.by_address.get(address) is before

    @rule(topic=st.sampled_from("TUV"))
    def delete(self, topic: str) -> None:
        self.table.delete_topic(topic)
        assert self.table.route(topic) is None

    @invariant()
    def every_address_lives_once(self) -> None:
        listed = [
            (data.broker_name, broker_id, address)
            for data in self.table.cluster_info().brokers.values()
            for broker_id, address in data.addresses.items()
        ]
        assert len({address for _name, _id, address in listed}) == len(listed)
        for name, broker_id, address in listed:
            live = self.table.brokers.by_address.get(address)
            assert live is not None
            assert (live.identity.broker_name, live.identity.broker_id) == (name, broker_id)
            assert live.expires_at > self.now
        living = [address for address in (A, B, C) if self.table.brokers.by_address.get(address)]
        assert sorted(living) == sorted(address for _name, _id, address in listed)

    @invariant()
    def what_is_bounded_is_counted_right(self) -> None:
        queues = [
            topic
            for topic in self.table.topics()
            for route in [self.table.route(topic)]
            for _queue in (route.queues if route else ())
        ]
        assert self.table.places.counts == (len(set(queues)), len(queues), len("".join(queues)))

    @invariant()
    def every_topic_has_a_route_with_brokers(self) -> None:
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert route.queues
            assert all(broker.addresses for broker in route.brokers)
        assert all(data.addresses for data in self.table.cluster_info().brokers.values())


RouteTableMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestRouteTableMachine = RouteTableMachine.TestCase


def test_a_route_of_many_brokers_is_told_in_parts_and_as_one_that_is_not() -> None:
    full = FullNameServer(Routes(brokers=200, topics=3, topics_of_broker=2))
    ask = Command(105, {"topic": EVERYWHERE})
    steps = full.processors.table.handle(full.asker, ask)
    assert steps is not None
    assert not isinstance(steps, Command)
    reply = last_of(steps)
    route = full.table.route(EVERYWHERE)
    assert reply is not None
    assert route is not None
    assert len(route.brokers) == 200
    assert reply.body == encode_route(route)


def test_a_broker_that_leaves_while_a_long_route_is_told_is_left_out_of_the_rest() -> None:
    full = FullNameServer(Routes(brokers=200, topics=3, topics_of_broker=2))
    parts = full.table.route_in_parts(EVERYWHERE)
    told = next(parts)
    full.table.connection_closed(full.asker.speaker.connection, 0.0)
    full.table.expire(1e9)
    assert len(told.brokers) == 64
    assert [len(part.brokers) for part in parts] == [0, 0, 0]


def test_every_change_of_what_lists_tell_is_counted() -> None:
    """Lists are made once for each count: one that is not counted leaves clients with old ones."""
    table = RouteTable()
    host_b = speaker(B)
    queues = [QueueData("b", 4, 4, 6, 0)]
    steps: dict[str, Any] = {
        "a broker": lambda: register(table, A, 0),
        "a second one": lambda: register(table, B, 1),
        "another topic": lambda: register(table, A, 0, told("T", "U")),
        "a name": lambda: register(table, C, 0, told("V"), name="c", timeout_s=30.0),
        "a topic that an operator adds": lambda: table.add_queues("W", queues),
        "a topic that is deleted": lambda: table.delete_topic("U"),
        "a broker that leaves": lambda: table.unregister(identity(B, 1), host_b),
        "one that comes back": lambda: register(table, B, 1),
        "a connection that breaks": lambda: table.connection_closed(host_b.connection, 1.0),
        "one that is silent": lambda: table.expire(31.0),
        "the last one": lambda: table.unregister(identity(A, 0), speaker(A)),
    }

    def lists() -> object:
        return table.topics(), table.cluster_info()

    for what, do in steps.items():
        before, counted = lists(), table.changes
        do()
        assert lists() != before, what
        assert table.changes != counted, what


def test_each_part_of_a_registration_that_is_taken_in_steps_is_counted() -> None:
    """A list that is made between two steps must not be kept for the time after them."""
    table = RouteTable()
    steps = taken_in_steps(table, A, *(f"T{number}" for number in range(600)))
    while not table.topics():
        next(steps)
    before, counted = table.topics(), table.changes
    last_of(steps)
    assert len(before) < len(table.topics()) == 600
    assert table.changes != counted


def test_registrations_that_are_taken_together_leave_the_tables_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is room for each of them when it is checked, and not for both."""
    monkeypatch.setattr(limits, "MAX_TOPICS", 1000)
    table = RouteTable()
    one, other = (
        taken_in_steps(table, address, *(f"{address}-{number}" for number in range(600)), name=name)
        for address, name in ((A, "a"), (B, "b"))
    )
    while not table.topics():
        next(one)
        next(other)
    last_of(one)
    with pytest.raises(TableFull):
        last_of(other)
    assert table.places.counts[0] == 1000
    register(table, A, 0, told(), name="a", complete=True)
    assert table.places.counts[0] == 400


def taken_in_steps(
    table: RouteTable, address: str, *topics: str, name: str = "b"
) -> Generator[None, None, object]:
    return table.register_in_steps(
        identity(address, 0, name), told(*topics), speaker=speaker(address), now=0.0
    )
