"""A network of namespaces around a switch, for the processes of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.links.condition import LinkCondition
from jepsen_like.chaos.links.counts import Counts, parse_counts
from jepsen_like.chaos.links.namespaces import FOLDER, address_of, namespace_of, prefix_of
from jepsen_like.chaos.links.switch import DONE, TELL_COUNTS, links_line, order_line
from jepsen_like.chaos.process_end import end_process
from jepsen_like.chaos.wiring import Addresses, Wiring

READY_TIMEOUT_S = 20.0
ORDER_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 10.0
# The counts of 16 hosts have some 15 KiB.
ANSWER_BYTES_MAX = 1_048_576
# Ports of each host: for members, for clients, for clients of the whole group.
PORTS = (20911, 20912, 20913)
_ODD = "the switch of the network said {!r} where an answer was due"


class SwitchedNetwork:
    """Hosts with addresses of their own, and links between them that can break."""

    def __init__(self, prefix: str, hosts: Sequence[str], process: trio.Process) -> None:
        self._process = process
        self._turn = trio.Lock()

        def command(host: str, argv: Sequence[str]) -> list[str]:
            path = FOLDER / namespace_of(prefix, host)
            return ["nsenter", f"--net={path}", "--", *argv]

        addresses = {
            host: Addresses(*(f"{address_of(place)}:{port}" for port in PORTS))
            for place, host in enumerate(hosts)
        }
        self.wiring = Wiring("namespaces", addresses, command)

    async def set_links(self, links: Mapping[tuple[str, str], LinkCondition]) -> None:
        """Replace all conditions; the new ones hold when this returns."""
        said = await self._ask(links_line(links))
        if said != DONE:
            raise HarnessFailed(_ODD.format(said))

    async def heal(self) -> None:
        await self.set_links({})

    async def counts(self) -> Counts:
        """Return the fates of packets since the begin, by source and target.

        Links without packets are left out. Raises HarnessFailed.
        """
        return parse_counts(json.loads(await self._ask(order_line(TELL_COUNTS))))

    async def _ask(self, line: bytes) -> bytes:
        """Give one order; return its answer.

        A cancelled caller still waits for the answer: the next order would take it for its own.
        """
        said = b""
        async with self._turn:
            with trio.CancelScope(shield=True):
                await self._order(line)
                said = await self._answer(ORDER_TIMEOUT_S)
        return said

    async def _order(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise HarnessFailed("the switch of the network has ended") from None

    async def wait_done(self, timeout_s: float) -> None:
        """Wait until the switch runs. Raises HarnessFailed."""
        said = await self._answer(timeout_s)
        if said != DONE:
            raise HarnessFailed(_ODD.format(said))

    async def _answer(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        said = b""
        with trio.move_on_after(timeout_s):
            while not said.endswith(b"\n") and len(said) < ANSWER_BYTES_MAX:
                piece = await self._process.stdout.receive_some(65_536)
                if not piece:
                    break
                said += piece
        if not said.endswith(b"\n"):
            raise HarnessFailed(_ODD.format(said))
        return said


@asynccontextmanager
async def switched_network(hosts: Sequence[str], seed: int) -> AsyncIterator[SwitchedNetwork]:
    """Make a network during a block. Needs root: see `namespaces.why_not`. Raises HarnessFailed."""
    prefix = prefix_of(os.getpid())
    command = [sys.executable, "-m", "jepsen_like.chaos.links", prefix, str(seed), *hosts]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    try:
        network = SwitchedNetwork(prefix, hosts, process)
        await network.wait_done(READY_TIMEOUT_S)
        yield network
    finally:
        await end_process(process, STOP_TIMEOUT_S)
