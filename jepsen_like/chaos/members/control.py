"""The orders that a run gives to the process of a member, over its standard input and output.

They go past the network that the run breaks. Each order is a line of JSON with a number, and so is
its answer; a line with `status` comes several times a second.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import trio

from dledger.core.membership.configuration_change import AddVoter, Change, Remove, UpdateAddress
from dledger.errors import DLedgerError
from dledger.node.node import Node

STATUS_EVERY_S = 0.1
# Orders that are carried out at the same time, such as a look during a change.
ORDERS_MAX = 16
LINE_BYTES_MAX = 1024 * 1024


class Control:
    """Carries out orders, and tells how the member is.

    Args:
        node: the member.
        broken: says what is wrong with the state, or None.
        state: the state as a plain value, or None.
        tell: writes one line.
    """

    def __init__(
        self,
        node: Node,
        broken: Callable[[], str | None],
        state: Callable[[], object],
        tell: Callable[[str], None],
    ) -> None:
        self._node = node
        self._broken = broken
        self._state = state
        self._tell = tell
        self._room = trio.CapacityLimiter(ORDERS_MAX)

    async def run(self, orders: AsyncIterator[str], scope: trio.CancelScope) -> None:
        """Carry out orders until there are no more of them, then cancel `scope`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_status)
            async for line in orders:
                order = json.loads(line)
                await self._room.acquire_on_behalf_of(order["id"])
                nursery.start_soon(self._answer, order)
            scope.cancel()

    async def _tell_status(self) -> None:
        while True:
            status = self._node.status()
            self._say(
                status={
                    "role": status.role,
                    "ready": status.ready,
                    "proven": status.proven,
                    "term": status.term,
                    "leader": status.leader,
                    "applied": status.applied,
                    "last_index": status.last_index,
                    "voters": status.members.voters,
                    "members": sorted(status.members.addresses),
                    "damage": status.scrub_damage,
                }
            )
            await trio.sleep(STATUS_EVERY_S)

    async def _answer(self, order: dict[str, Any]) -> None:
        try:
            value = await self._carry_out(order)
        except DLedgerError as error:
            self._say(id=order["id"], error=f"{type(error).__name__}: {error}")
        else:
            self._say(id=order["id"], value=value)
        finally:
            self._room.release_on_behalf_of(order["id"])

    async def _carry_out(self, order: dict[str, Any]) -> object:
        node = self._node
        match order["do"]:
            case "look":
                await node.read()
                return {
                    "index": node.read_stale(max_lag_s=math.inf),  # behind which the state is now
                    "broken": self._broken(),
                    "state": self._state() if order.get("state") else None,
                }
            case "transfer":
                return await node.transfer_leadership(order.get("to"))
            case "snapshot":
                return (await node.snapshot()).header.index
            case "change":
                changes: list[Change] = [AddVoter(*pair) for pair in order.get("add", {}).items()]
                changes += [UpdateAddress(*pair) for pair in order.get("move", {}).items()]
                changes += [Remove(name) for name in order.get("remove", ())]
                numbered = await node.change(changes)
                return sorted(numbered.configuration.voters)
            case other:
                raise ValueError(f"no order is named {other}")

    def _say(self, **fields: object) -> None:
        self._tell(json.dumps(fields))


def tell(line: str) -> None:
    """Tell the run a line, on standard output."""
    with suppress(BrokenPipeError):  # the run is gone: standard input ends, too
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str, None]:
    """The lines that arrive on a stream. A line that was cut off by its end is left out."""
    rest = b""
    while piece := await stream.receive_some(64 * 1024):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode()
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
