"""Shapes of partitions, and what single links do to packets."""

from __future__ import annotations

import pytest

from jepsen_like.chance import Chance
from jepsen_like.chaos.links.condition import COPY_S, OVERTAKEN_S, Link, LinkCondition
from jepsen_like.chaos.links.shapes import (
    Cuts,
    bridge,
    deaf,
    halves,
    isolated,
    majorities_ring,
    mute,
    one_way,
)

THREE = ["n0", "n1", "n2"]
FIVE = ["n0", "n1", "n2", "n3", "n4"]
SEVEN = [f"n{number}" for number in range(7)]


def hears(cuts: Cuts, hosts: list[str]) -> dict[str, set[str]]:
    """Whom each host hears, itself included."""
    return {
        host: {other for other in hosts if (other, host) not in cuts or other == host}
        for host in hosts
    }


def test_an_isolated_host_and_the_others_hear_each_other_no_more() -> None:
    found = hears(isolated(THREE, "n1"), THREE)
    assert found == {"n0": {"n0", "n2"}, "n1": {"n1"}, "n2": {"n0", "n2"}}


def test_a_mute_host_hears_and_a_deaf_one_is_heard() -> None:
    assert hears(mute(THREE, "n1"), THREE)["n1"] == set(THREE)
    assert hears(mute(THREE, "n1"), THREE)["n0"] == {"n0", "n2"}
    assert hears(deaf(THREE, "n1"), THREE)["n1"] == {"n1"}
    assert hears(deaf(THREE, "n1"), THREE)["n0"] == set(THREE)


def test_halves_hear_only_themselves() -> None:
    found = hears(halves(FIVE[:2], FIVE[2:]), FIVE)
    assert found["n0"] == found["n1"] == {"n0", "n1"}
    assert found["n4"] == {"n2", "n3", "n4"}


def test_one_way_is_one_way() -> None:
    found = hears(one_way(["n0"], ["n1", "n2"]), THREE)
    assert found["n0"] == set(THREE)
    assert found["n1"] == {"n1", "n2"}


@pytest.mark.parametrize("hosts", [FIVE, SEVEN])
def test_in_a_ring_each_host_hears_a_majority_and_no_two_the_same_one(hosts: list[str]) -> None:
    found = hears(majorities_ring(hosts), hosts)
    assert all(len(hosts) // 2 < len(heard) < len(hosts) for heard in found.values())
    assert len({frozenset(heard) for heard in found.values()}) == len(hosts)


def test_of_three_hosts_a_ring_cuts_one_pair() -> None:
    assert sorted(majorities_ring(THREE)) == [("n0", "n1"), ("n1", "n0")]


def test_one_host_of_a_bridge_hears_both_sides() -> None:
    found = hears(bridge(FIVE), FIVE)
    assert found["n2"] == set(FIVE)
    assert found["n0"] == {"n0", "n1", "n2"}
    assert found["n4"] == {"n2", "n3", "n4"}


def link(**fields: float) -> Link:
    return Link(LinkCondition(**fields), Chance(1, "link"))  # type: ignore[arg-type]


def test_a_cut_link_lets_nothing_pass_and_a_clear_one_all_at_once() -> None:
    assert Link(LinkCondition(cut=True), Chance(1, "")).arrivals(5.0) == ()
    assert link().arrivals(5.0) == (5.0,)


def test_losses_and_copies_are_about_as_frequent_as_asked() -> None:
    lossy, doubling = link(loss=0.3), link(duplicate=0.2)
    lost = sum(not lossy.arrivals(0.0) for _ in range(2_000))
    doubled = [arrivals for _ in range(2_000) if len(arrivals := doubling.arrivals(1.0)) == 2]
    assert 500 < lost < 700
    assert 320 < len(doubled) < 480
    assert doubled[0] == (1.0, 1.0 + COPY_S)


def test_packets_that_are_late_keep_their_order() -> None:
    late = link(delay_s=0.05, jitter_s=0.05)
    arrivals = [late.arrivals(number / 1000)[0] for number in range(200)]
    assert arrivals == sorted(arrivals)
    assert all(0.05 <= at - number / 1000 <= 0.15 for number, at in enumerate(arrivals))


def test_packets_are_overtaken_where_that_is_asked() -> None:
    arrivals = [at for number in range(200) for at in link_reordering.arrivals(number / 1000)]
    assert arrivals != sorted(arrivals)
    assert max(at - number / 1000 for number, at in enumerate(arrivals)) <= OVERTAKEN_S + 0.001


link_reordering = link(reorder=0.3)
