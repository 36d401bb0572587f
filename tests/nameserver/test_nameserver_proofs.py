"""A broker name stays with the group that proves itself, whatever others tell."""

from __future__ import annotations

import pytest

from nameserver.brokers import BrokerIdentity, Speaker
from nameserver.errors import BrokerAlive, NameHeld
from nameserver.holders import MAX_FORMER, PROOF_KEPT_S, Holders
from nameserver.limits import MAX_STATE_VERSION
from nameserver.routes import BROKER_TIMEOUT_S, RouteTable
from remoting.bodies.registration import BrokerRegistration
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.wire.errors import RemotingError

OURS, THEIRS = "10.0.0.1:10911", "10.0.0.1:6666"  # on one host


def register(
    table: RouteTable,
    address: str,
    term: int,
    proof: str = "",
    *,
    name: str = "b",
    broker_id: int = 0,
    now: float = 0.0,
    direct: str = "",
    complete: bool = False,
) -> None:
    table.register(
        BrokerIdentity("cl", name, broker_id, address),
        BrokerRegistration({"T": TopicConfig("T", 4, 4)}, DataVersion(0, 0, term)),
        speaker=Speaker(f"{address} {proof} {direct}", "10.0.0.1"),
        now=now,
        direct_address=direct,
        complete=complete,
        proof=proof,
    )


def master(table: RouteTable) -> str | None:
    found = table.brokers.master_of("b")
    return None if found is None else found.identity.address


@pytest.mark.parametrize("proof", ["", "guessed"])
@pytest.mark.parametrize("broker_id", [0, 1])
@pytest.mark.parametrize("address", [OURS, THEIRS])
@pytest.mark.parametrize("name", ["b", "other"])
def test_no_registration_without_the_proof_changes_anything_of_the_group(
    proof: str, broker_id: int, address: str, name: str
) -> None:
    table = RouteTable()
    register(table, OURS, 5, "secret")
    try:
        register(table, address, 6, proof, name=name, broker_id=broker_id, direct="10.0.0.1:7")
    except RemotingError:
        pass
    else:
        assert (name, address) == ("other", THEIRS)
    found = table.broker("b")
    assert found is not None
    assert found.addresses == {0: OURS}


def test_the_next_leader_of_the_group_takes_over_at_once() -> None:
    table = RouteTable()
    register(table, OURS, 5, "secret")
    register(table, THEIRS, 6, "secret")  # the last one may be frozen: its connection is open
    assert master(table) == THEIRS


def test_nobody_takes_the_name_while_one_leader_has_gone_and_the_next_is_to_come() -> None:
    table = RouteTable()
    register(table, OURS, 5, "secret")
    table.connection_closed(f"{OURS} secret ", 1.0)
    assert master(table) is None
    with pytest.raises(NameHeld, match="held by another group"):
        register(table, THEIRS, 6, "mine", now=1.0 + PROOF_KEPT_S - 1)
    register(table, THEIRS, 6, "secret", now=1.0 + PROOF_KEPT_S - 1)
    assert master(table) == THEIRS


def test_a_name_is_free_some_seconds_after_its_group_has_gone() -> None:
    table = RouteTable()
    register(table, OURS, 5, "secret")
    table.connection_closed(f"{OURS} secret ", 1.0)
    register(table, THEIRS, 1, "mine", now=1.0 + PROOF_KEPT_S)
    silent = RouteTable()
    register(silent, OURS, 5, "secret")
    later = BROKER_TIMEOUT_S + PROOF_KEPT_S
    silent.expire(later)
    register(silent, THEIRS, 1, now=later)


@pytest.mark.parametrize("broker_id", [0, 1])
@pytest.mark.parametrize("address", [OURS, THEIRS])
@pytest.mark.parametrize(("name", "cluster"), [("b", "cl"), ("b", "theirs"), ("other", "cl")])
@pytest.mark.parametrize("direct", ["", "10.0.0.66:7"])
def test_who_was_there_first_without_a_proof_keeps_no_group_from_its_name_or_its_address(
    broker_id: int, address: str, name: str, cluster: str, direct: str
) -> None:
    table = RouteTable()

    def squat() -> None:
        table.register(
            BrokerIdentity(cluster, name, broker_id, address),
            BrokerRegistration(
                {"theirs": TopicConfig("theirs", 1, 1)}, DataVersion(0, 0, MAX_STATE_VERSION)
            ),
            speaker=Speaker("stranger", "10.0.0.66"),
            now=0.0,
            direct_address=direct,
        )

    squat()
    register(table, OURS, 1, "secret", complete=True)
    found = table.broker("b")
    assert found is not None
    assert (found.cluster, found.addresses, found.leader) == ("cl", {0: OURS}, OURS)
    assert table.has_topic("theirs") == (name == "other" and address == THEIRS)
    if name == "b" or address == OURS:
        with pytest.raises((NameHeld, BrokerAlive)):
            squat()


def test_topics_stay_in_their_routes_when_a_group_first_proves_itself() -> None:
    table = RouteTable()
    topics = {f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(1000)}
    for proof in ("", "secret"):
        steps = table.register_in_steps(
            BrokerIdentity("cl", "b", 0, OURS),
            BrokerRegistration(topics, DataVersion(0, 0, 1)),
            speaker=Speaker("leader", "10.0.0.1"),
            now=0.0,
            complete=True,
            proof=proof,
        )
        for _step in steps:
            assert not proof or all(map(table.has_topic, topics))
    assert table.places.counts[:2] == (1000, 1000)


def test_brokers_without_proofs_follow_one_another_as_before() -> None:
    table = RouteTable()
    register(table, OURS, 0)
    register(table, THEIRS, 0)
    assert master(table) == THEIRS
    register(table, OURS, 1, "secret")
    assert master(table) == OURS


def test_only_the_connection_of_a_group_with_a_proof_says_good_bye() -> None:
    table = RouteTable()
    register(table, OURS, 5, "secret")
    identity = BrokerIdentity("cl", "b", 0, OURS)
    with pytest.raises(BrokerAlive):
        table.unregister(identity, Speaker("stranger", "10.0.0.1"))
    assert table.unregister(identity, Speaker(f"{OURS} secret ", "10.0.0.1"))


def hold(table: RouteTable, address: str, proof: str, begin: float, end: float) -> None:
    """Register again and again, then be gone."""
    while begin <= end:
        register(table, address, 1, proof, now=begin)
        begin += 30.0
    table.connection_closed(f"{address} {proof} ", end)


@pytest.mark.parametrize("theirs", [OURS, THEIRS])
def test_a_group_that_returns_takes_its_name_from_a_stranger_with_a_proof(theirs: str) -> None:
    table = RouteTable()
    hold(table, OURS, "secret", 0.0, 3000.0)
    for now in (3100.0, 3130.0, 3160.0):  # the stranger stays
        register(table, theirs, MAX_STATE_VERSION - 1, "mine", now=now)
    register(table, OURS, 7, "secret", now=3170.0)
    found = table.broker("b")
    assert found is not None
    assert found.addresses == {0: OURS}
    with pytest.raises(NameHeld):
        register(table, THEIRS, MAX_STATE_VERSION, "mine", now=3180.0)
    table.connection_closed(f"{OURS} secret ", 3190.0)
    register(table, THEIRS, 1, "mine", now=3300.0)
    register(table, OURS, 8, "secret", now=3310.0)  # and again
    assert master(table) == OURS


def test_a_stranger_that_came_first_does_not_take_the_name_of_a_group_that_lives() -> None:
    table = RouteTable()
    hold(table, THEIRS, "mine", 0.0, 300.0)
    for now in range(400, 1000, 30):
        register(table, OURS, 2, "secret", now=float(now))
    with pytest.raises(NameHeld):
        register(table, THEIRS, 3, "mine", now=1000.0)


def test_a_successor_may_have_the_name_while_the_former_group_is_away() -> None:
    table = RouteTable()
    hold(table, OURS, "secret", 0.0, 3000.0)
    register(table, THEIRS, 1, "of the successor", now=3100.0)
    assert master(table) == THEIRS


def test_former_holders_are_bounded_and_short_ones_push_no_long_one_out() -> None:
    holders = Holders()
    for now in (0.0, 30.0, 60.0):
        holders.hold("b", "secret", now, now)
    holders.expire(200.0)
    for number in range(MAX_FORMER + 10):
        now = 300.0 + number
        holders.check(f"n{number}", "mine", now)
        holders.hold(f"n{number}", "mine", now - PROOF_KEPT_S, now)
        holders.expire(now)
    holders.check("b", "mine", 9000.0)
    holders.hold("b", "mine", 9100.0, 9000.0)
    holders.check("b", "secret", 9001.0)
    with pytest.raises(NameHeld):
        holders.check("b", "theirs", 9001.0)
    assert len(holders._former) == MAX_FORMER


def test_a_name_is_held_while_one_of_its_brokers_is_left_and_forgotten_with_the_last() -> None:
    table, stranger = RouteTable(), Speaker("stranger", "10.0.0.9")
    for number, now in ((0, 0.0), (1, 0.0)):
        address = f"10.0.0.{number}:10911"
        table.register(
            BrokerIdentity("cl", "b", number, address),
            BrokerRegistration({}, DataVersion(0, 0, 0)),
            speaker=Speaker(address, f"10.0.0.{number}"),
            now=now,
            proof="shared",
        )
    table.connection_closed("10.0.0.1:10911", 1.0)
    taken = BrokerIdentity("cl", "b", 0, "10.0.0.9:10911")
    with pytest.raises(NameHeld):
        table.register(
            taken,
            BrokerRegistration({}, DataVersion(0, 0, 9)),
            speaker=stranger,
            now=1.0 + PROOF_KEPT_S + 1,
        )
    table.connection_closed("10.0.0.0:10911", 20.0)
    table.expire(20.0 + PROOF_KEPT_S)
    assert "b" not in table._holders
