"""Checks running hosts from time to time for what must hold at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import trio

from dledger.network.host_connection import MAX_OUTBOX_BYTES
from dledger.status import Status
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.seat import Running, Seat
from jepsen_like.simulation.hosts.virtual_host import VirtualHost

LOOK_EVERY_S = 0.25
# Connections from one machine to another meanwhile. Ten clients run on a machine at most, and a
# client that looks for a leader dials a member four times in that time: it pauses for 0.05 s, and
# each time for twice as long.
MOST_DIALS = 40

# Once the network had no fault for so long, the leader must know of a closed member.
HEARD_OF_S = 3.0


class _Led(NamedTuple):
    member: str
    since: float


class Watch:
    def __init__(self, around: Around, hosts: Sequence[VirtualHost]) -> None:
        self._around = around
        self._hosts = hosts
        self._dials: dict[tuple[str, str], int] = {}
        self._led: dict[tuple[str, int], _Led] = {}

    async def run(self) -> None:
        while True:
            await trio.sleep(LOOK_EVERY_S)
            self._look_at_dials()
            for host in self._hosts:
                self._look_at_host(host)
                for seat in host.seats:
                    if seat.running is not None:
                        self._look_at_member(seat, seat.running)

    def _look_at_dials(self) -> None:
        for between, dials in self._around.internet.dials.items():
            lately = dials - self._dials.get(between, 0)
            self._dials[between] = dials

            if lately > MOST_DIALS:
                self._around.broken(
                    "retries are paused", f"{lately} connections in {LOOK_EVERY_S} s: {between}"
                )

    def _look_at_host(self, host: VirtualHost) -> None:
        if host.host is None:
            return
        for connection in host.host.connections:
            if connection.outbox_bytes > MAX_OUTBOX_BYTES:
                self._around.broken(
                    "queues keep to their limits",
                    f"{host.name}: {connection.outbox_bytes} bytes wait for {connection.address}",
                )

    def _look_at_member(self, seat: Seat, running: Running) -> None:
        status, config = running.node.status(), running.node.config
        name = f"{seat.group.name}/{seat.member}"
        if status.pending_entries > config.max_pending_entries:
            self._around.broken(
                "queues keep to their limits", f"{name}: {status.pending_entries} appends wait"
            )
        if not status.applied <= min(status.committed, status.last_index):
            self._around.broken(
                "applied entries are committed",
                f"{name}: applied {status.applied}, committed {status.committed}, "
                f"last {status.last_index}",
            )
        if status.role == "leader":
            self._look_at_leader(seat, status)

    def _look_at_leader(self, seat: Seat, status: Status) -> None:
        now, name = trio.current_time(), f"{seat.group.name}/{seat.member}"
        led = self._led.setdefault((seat.group.name, status.term), _Led(seat.member, now))
        if led.member != seat.member:
            self._around.broken(
                "one leader a term",
                f"{seat.group.name}: {led.member} and {seat.member} lead in term {status.term}",
            )
        if now - led.since < HEARD_OF_S:
            return
        # A follower may know less: it has no messages for the others.
        for peer, seen in status.peers.items():
            if seen.connected and self._long_closed(seat.group.name, peer):
                self._around.broken(
                    "channels end with their member",
                    f"{name} takes its channel to {peer} for open, which was closed long ago",
                )

    def _long_closed(self, group: str, member: str) -> bool:
        """Return whether that member has been closed for so long that all members must know."""
        now = trio.current_time()
        for host in self._hosts:
            for seat in host.seats:
                if seat.group.name == group and seat.member == member:
                    if seat.closed_since is None or not host.endpoint.is_up:
                        return False
                    since = max(seat.closed_since, self._around.calm_since())
                    return now - since > HEARD_OF_S
        return False
