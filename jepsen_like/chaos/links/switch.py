"""The switch: passes packets between the hosts of a run, by the conditions of links.

Each host is a network namespace whose only device is a TUN; the switch holds the other end of each.
A kernel without netem has no other way to delay packets, and none to cut one direction without
firewall rules.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import selectors
import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from jepsen_like.chance import Chance
from jepsen_like.chaos.links.condition import Link, LinkCondition
from jepsen_like.chaos.links.counts import Counts, LinkCounts, counts_rows

PACKET_BYTES_MAX = 65_536
# Packets that are read from one host before the others have their turn.
PACKETS_A_TURN = 64
# Packets that are held up; further ones are lost, as in a switch whose buffers are full.
HELD_PACKETS_MAX = 20_000
# The order without conditions.
TELL_COUNTS = "counts"
# The answer to an order, and the first line of the switch when it runs.
DONE = b"done\n"
IPV4 = 4
SOURCE, TARGET = slice(12, 16), slice(16, 20)


class Switch:
    """Passes packets on between devices, which are TUNs that do not block."""

    def __init__(
        self, devices: Mapping[str, int], addresses: Mapping[str, bytes], seed: int
    ) -> None:
        self._devices = devices
        self._hosts = {address: host for host, address in addresses.items()}
        self._seed = seed
        self._links: dict[tuple[str, str], Link] = {}
        self._counts: Counts = {}
        self._held: list[tuple[float, int, int, bytes, LinkCounts]] = []
        self._numbers = itertools.count()
        self._changes = 0
        self._rest = b""

    def set_links(self, conditions: Mapping[tuple[str, str], LinkCondition]) -> None:
        """Replace all conditions. Packets that are held up arrive."""
        self._changes += 1
        self._links = {
            pair: Link(condition, Chance(self._seed, f"link {pair} {self._changes}"))
            for pair, condition in conditions.items()
            if not condition.is_clear
        }

    def run(self, orders: int, answers: int) -> None:
        """Pass packets on until the descriptor `orders` ends; answer each order with a line."""
        with selectors.DefaultSelector() as selector:
            for device in self._devices.values():
                selector.register(device, selectors.EVENT_READ)
            selector.register(orders, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(self._timeout_s()):
                    if key.fd != orders:
                        self._pass_on(key.fd)
                    elif not self._take_orders(orders, answers):
                        return
                self._release(time.monotonic())

    def _timeout_s(self) -> float | None:
        return max(0.0, self._held[0][0] - time.monotonic()) if self._held else None

    def _take_orders(self, orders: int, answers: int) -> bool:
        piece = os.read(orders, PACKET_BYTES_MAX)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            os.write(answers, self._obey(json.loads(line)))
        return bool(piece)

    def _obey(self, order: Any) -> bytes:
        if order == TELL_COUNTS:
            return json.dumps(counts_rows(self._counts)).encode() + b"\n"
        self.set_links(parse_links(order))
        return DONE

    def _pass_on(self, device: int) -> None:
        now_s = time.monotonic()
        for _ in range(PACKETS_A_TURN):
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            source = self._hosts.get(packet[SOURCE])
            target = self._hosts.get(packet[TARGET])
            if packet[0] >> 4 != IPV4 or source is None or target is None:
                continue  # such as the neighbour discovery of IPv6
            counts = self._counts.get((source, target))
            if counts is None:
                counts = self._counts[source, target] = LinkCounts()
            link = self._links.get((source, target))
            if link is None:
                self._write(self._devices[target], packet, counts)
                continue
            arrivals = link.arrivals(now_s)
            counts.lost += not arrivals
            counts.copied += len(arrivals) == 2
            for at_s in arrivals:
                if at_s <= now_s:
                    self._write(self._devices[target], packet, counts)
                else:
                    self._hold(at_s, self._devices[target], packet, counts)

    def _hold(self, at_s: float, device: int, packet: bytes, counts: LinkCounts) -> None:
        if len(self._held) >= HELD_PACKETS_MAX:
            counts.overflowed += 1
            return
        counts.held += 1
        heapq.heappush(self._held, (at_s, next(self._numbers), device, packet, counts))

    def _release(self, now_s: float) -> None:
        while self._held and self._held[0][0] <= now_s:
            _, _, device, packet, counts = heapq.heappop(self._held)
            self._write(device, packet, counts)

    def _write(self, device: int, packet: bytes, counts: LinkCounts) -> None:
        try:
            os.write(device, packet)
        except BlockingIOError:
            counts.overflowed += 1  # the host does not take it
        else:
            counts.passed += 1


def order_line(order: object) -> bytes:
    """Return an order to the switch: TELL_COUNTS, or rows of conditions."""
    return json.dumps(order).encode() + b"\n"


def links_line(links: Mapping[tuple[str, str], LinkCondition]) -> bytes:
    """Return conditions as an order to the switch."""
    return order_line([[*link, *astuple(condition)] for link, condition in links.items()])


def parse_links(rows: list[list[Any]]) -> dict[tuple[str, str], LinkCondition]:
    """Return the conditions of an order."""
    return {(source, target): LinkCondition(*fields) for source, target, *fields in rows}
