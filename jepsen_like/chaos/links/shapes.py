"""The shapes of partitions: which directions are cut between which hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jepsen_like.chaos.links.condition import CUT, LinkCondition

Cuts = dict[tuple[str, str], LinkCondition]


def isolated(hosts: Iterable[str], one: str) -> Cuts:
    """Cut one host off: it neither sends to the others nor hears them."""
    return {**mute(hosts, one), **deaf(hosts, one)}


def mute(hosts: Iterable[str], one: str) -> Cuts:
    """Mute one host: it hears the others, and they do not hear it."""
    return {(one, other): CUT for other in hosts if other != one}


def deaf(hosts: Iterable[str], one: str) -> Cuts:
    """Deafen one host: the others hear it, and it does not hear them."""
    return {(other, one): CUT for other in hosts if other != one}


def halves(first: Sequence[str], second: Sequence[str]) -> Cuts:
    """Cut two sides off from each other."""
    return {pair: CUT for a in first for b in second for pair in ((a, b), (b, a))}


def majorities_ring(hosts: Sequence[str]) -> Cuts:
    """Connect each host to a majority, and no two to the same one.

    Hosts stand in a ring, and each hears the nearest ones that make a majority with itself. Of
    three, that would be all of them, and nothing would be cut: there, one pair is.
    """
    number = len(hosts)
    if number <= 3:
        return halves(hosts[:1], hosts[1:2])
    reach = (number // 2 + 1) // 2
    cuts: Cuts = {}
    for place, host in enumerate(hosts):
        for other_place, other in enumerate(hosts):
            distance = min((place - other_place) % number, (other_place - place) % number)
            if distance > reach:
                cuts[host, other] = CUT
    return cuts


def bridge(hosts: Sequence[str]) -> Cuts:
    """Cut two sides off from each other, with one host between them that hears both."""
    middle = len(hosts) // 2
    return halves(hosts[:middle], hosts[middle + 1 :])


def one_way(first: Sequence[str], second: Sequence[str]) -> Cuts:
    """Cut one direction: the second side does not hear the first; the first hears the second."""
    return {(a, b): CUT for a in first for b in second}
