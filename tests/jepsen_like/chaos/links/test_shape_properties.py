"""What holds of the shapes of partitions for any hosts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jepsen_like.chaos.links.condition import CUT
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

HOSTS = st.integers(2, 11).map(lambda number: [f"n{place}" for place in range(number)])
HOSTS_AND_PLACE = HOSTS.flatmap(
    lambda hosts: st.tuples(st.just(hosts), st.integers(0, len(hosts) - 1))
)


def turned(cuts: Cuts) -> Cuts:
    """The same in the other direction."""
    return {(target, source): condition for (source, target), condition in cuts.items()}


def check_cuts(cuts: Cuts, hosts: list[str]) -> None:
    """Every pair is of two hosts that exist, and is cut."""
    assert all(source != target for source, target in cuts)
    assert {host for pair in cuts for host in pair} <= set(hosts)
    assert all(condition == CUT for condition in cuts.values())


@given(HOSTS_AND_PLACE)
def test_a_host_is_isolated_if_it_is_mute_and_deaf(of: tuple[list[str], int]) -> None:
    hosts, place = of
    one = hosts[place]
    assert isolated(hosts, one) == {**mute(hosts, one), **deaf(hosts, one)}
    assert turned(mute(hosts, one)) == deaf(hosts, one)
    assert len(mute(hosts, one)) == len(hosts) - 1
    check_cuts(isolated(hosts, one), hosts)


@given(HOSTS_AND_PLACE)
def test_halves_are_one_way_in_both_directions(of: tuple[list[str], int]) -> None:
    hosts, place = of
    first, second = hosts[:place], hosts[place:]
    assert halves(first, second) == {**one_way(first, second), **one_way(second, first)}
    assert not one_way(first, second).keys() & one_way(second, first).keys()
    assert len(halves(first, second)) == 2 * len(first) * len(second)
    check_cuts(halves(first, second), hosts)


@given(HOSTS)
def test_a_ring_is_even_handed_and_leaves_each_host_a_majority(hosts: list[str]) -> None:
    cuts = majorities_ring(hosts)
    check_cuts(cuts, hosts)
    assert turned(cuts) == cuts
    if len(hosts) > 3:
        heard = [{a for a in hosts if (a, b) not in cuts} for b in hosts]
        assert all(len(one) > len(hosts) // 2 for one in heard)
        assert len({len(one) for one in heard}) == 1


@given(HOSTS)
def test_sides_of_a_bridge_meet_in_one_host_alone(hosts: list[str]) -> None:
    cuts = bridge(hosts)
    check_cuts(cuts, hosts)
    assert turned(cuts) == cuts
    middle = hosts[len(hosts) // 2]
    assert not any(middle in pair for pair in cuts)
    sides = {frozenset(a for a in hosts if (a, b) in cuts) for b in hosts if b != middle}
    if len(hosts) > 2:
        assert len(sides) == 2
