"""A hostile client: `python -m jepsen_like.chaos.hostile ATTACK SEED PORT... `.

It attacks the ports until its standard input ends, and prints how many connections it has made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import trio

from dledger.command_line.server_signals import cancel_at_end_of_input
from jepsen_like.chance import Chance
from jepsen_like.chaos.hostile.attacks import ATTACKS
from remoting.net.address import parse_address

AT_ONCE = 4
# Each connection of a storm is left half open: it says nothing, and is dropped after a while.
STORM, STORM_STAYS_S = 300, 1.0
ATTACK_LASTS_S = 0.5
PAUSE_S = 0.05


class Hostile:
    """One attack: a name of `ATTACKS`, or `storm`: connections that come at once and say
    nothing.
    """

    def __init__(self, attack: str, ports: Sequence[str], chance: Chance) -> None:
        self._attack = attack
        self._ports = [parse_address(port) for port in ports]
        self._chance = chance
        self._made = 0

    async def run(self) -> None:
        storm = self._attack == "storm"
        async with trio.open_nursery() as nursery:
            for place in range(STORM if storm else AT_ONCE):
                nursery.start_soon(self._connect_again, place, storm)

    async def _connect_again(self, place: int, storm: bool) -> None:
        host, port = self._ports[place % len(self._ports)]
        while True:
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                async with await trio.open_tcp_stream(host, port) as stream:
                    self._made += 1
                    sys.stdout.write(f"{self._made}\n")
                    sys.stdout.flush()
                    if storm:
                        await trio.sleep(STORM_STAYS_S)
                    else:
                        with trio.move_on_after(ATTACK_LASTS_S):
                            await stream.send_all(ATTACKS[self._attack](self._chance))
                            await stream.receive_some(1 << 16)
            await trio.sleep(PAUSE_S)


async def attack(name: str, seed: str, ports: Sequence[str]) -> None:
    """Attack until standard input ends."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Hostile(name, ports, Chance(int(seed), name)).run)
        await cancel_at_end_of_input(nursery.cancel_scope)


if __name__ == "__main__":
    trio.run(attack, sys.argv[1], sys.argv[2], sys.argv[3:])
