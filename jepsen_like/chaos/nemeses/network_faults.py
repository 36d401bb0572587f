"""Faults of the network: partitions, and packets that are lost, late, or twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.links.condition import LinkCondition
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
from jepsen_like.chaos.links.switched_network import SwitchedNetwork
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executors, leader_of, target_of
from jepsen_like.chaos.wiring import CLIENTS_HOST, PROXY_HOSTS

# How long a flapping link stays cut or whole: about as long as an election takes.
FLAPS_S = (0.1, 0.8)
# The fate of packets by which a kind of fault takes effect: see LinkCounts.
FATES = {"loss": "lost", "delay": "held", "reorder": "held", "duplicate": "copied"}


class NetworkFaults:
    """Breaks the links between members.

    Those between clients and members stay whole, so that clients see the answers of a member that
    is cut off; only `silence` cuts all of these. The fates of packets tell whether a fault took
    effect.
    """

    def __init__(self, network: SwitchedNetwork) -> None:
        self._network = network

    @property
    def executors(self) -> Executors:
        return {
            "partition": self.partition,
            "flapping": self.flapping,
            "silence": self.silence,
            **dict.fromkeys(FATES, self.packets),
        }

    @asynccontextmanager
    async def partition(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        targets, cuts = shape_of(group, chance, kind)
        cut = sorted(f"{source}>{target}" for source, target in cuts)
        async with self._broken(cuts, "lost") as effect:
            yield Done(targets, {"cut": cut}, effect.copy)

    @asynccontextmanager
    async def silence(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Let packets between clients and members vanish; members hear one another.

        Clients of gRPC hear their proxies, which hear no member.
        """
        names = sorted(member.name for member in group.present)
        known = self._network.wiring.addresses
        outside = [host for host in (CLIENTS_HOST, *PROXY_HOSTS) if host in known]
        async with self._broken(halves(names, outside), "lost") as effect:
            yield Done(tuple(names), effect=effect.copy)

    @asynccontextmanager
    async def flapping(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Cut the leader off and heal again, over and over."""
        leader = leader_of(group)
        cuts = isolated([member.name for member in group.present], leader.name)
        async with trio.open_nursery() as nursery, self._broken(cuts, "lost") as effect:
            nursery.start_soon(self._flap, cuts, chance)
            yield Done((leader.name,), effect=effect.copy)
            nursery.cancel_scope.cancel()

    async def _flap(self, cuts: Cuts, chance: Chance) -> None:
        while True:
            for links in ({}, cuts):
                await trio.sleep(chance.uniform(*FLAPS_S))
                await self._network.set_links(links)

    @asynccontextmanager
    async def packets(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Worsen packets between all members, or those of one member."""
        condition = condition_of(chance, kind)
        names = [member.name for member in group.present]
        one = chance.choice(names) if chance.happens(0.5) else None
        links = {
            (source, target): condition
            for source in names
            for target in names
            if source != target and one in (None, source, target)
        }
        async with self._broken(links, FATES[kind]) as effect:
            numbers = {name: value for name, value in vars(condition).items() if value}
            yield Done(tuple(names) if one is None else (one,), numbers, effect.copy)

    @asynccontextmanager
    async def _broken(
        self, links: Mapping[tuple[str, str], LinkCondition], fate: str
    ) -> AsyncIterator[dict[str, int]]:
        """Break links during a block; the yielded dictionary has the effect once they are
        healed.
        """
        before = await self._packets_of(links, fate)
        effect: dict[str, int] = {}
        await self._network.set_links(links)
        try:
            yield effect
        finally:
            with trio.CancelScope(shield=True):
                await self._network.heal()
                effect[fate] = await self._packets_of(links, fate) - before

    async def _packets_of(self, links: Iterable[tuple[str, str]], fate: str) -> int:
        counts = await self._network.counts()
        return sum(getattr(counts[link], fate) for link in links if link in counts)


def condition_of(chance: Chance, kind: str) -> LinkCondition:
    match kind:
        case "loss":
            return LinkCondition(loss=round(chance.uniform(0.05, 0.3), 3))
        case "delay":
            delay_s = round(chance.uniform(0.005, 0.2), 3)
            return LinkCondition(delay_s=delay_s, jitter_s=round(delay_s / 2, 4))
        case "reorder":
            return LinkCondition(delay_s=0.002, reorder=round(chance.uniform(0.1, 0.5), 3))
        case _:
            return LinkCondition(duplicate=round(chance.uniform(0.1, 0.5), 3))


def shape_of(group: Group, chance: Chance, kind: str) -> tuple[tuple[str, ...], Cuts]:
    """Return the links that a kind of partition cuts, and its targets. Raises Skipped."""
    names = sorted(member.name for member in group.present)
    if kind in ("isolate-leader", "isolate-random", "mute-leader", "deaf-leader"):
        one = target_of(group, chance, kind).name
        shapes = {"mute-leader": mute, "deaf-leader": deaf}
        return (one,), shapes.get(kind, isolated)(names, one)
    chance.shuffle(names)
    middle = len(names) // 2
    match kind:
        case "halves":
            return tuple(names[:middle]), halves(names[:middle], names[middle:])
        case "majorities-ring":
            return tuple(names), majorities_ring(names)
        case "bridge":
            return (names[middle],), bridge(names)
        case _:
            first, second = names[:middle], names[middle:]
            if chance.happens(0.5):
                first, second = second, first
            return tuple(second), one_way(first, second)
