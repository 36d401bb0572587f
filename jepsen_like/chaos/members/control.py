"""The orders that a run gives to the process of a member, over its standard input and output.

They do not use the network that the run breaks. Each order is a line of JSON with a number, and so
is its answer; a line with `status` comes several times a second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from dledger.core.membership.configuration_change import AddVoter, Change, Remove, UpdateAddress
from dledger.errors import DLedgerError
from dledger.node.node import Node
from jepsen_like.chaos.orders import heard_orders, say

STATUS_EVERY_S = 0.1
# Orders that are carried out at the same time, such as a look during a change.
ORDERS_MAX = 16


@dataclass
class Control:
    """Carries out orders, and reports the status of the member; `broken` is its broken
    invariant.
    """

    node: Node
    broken: Callable[[], str | None]
    state: Callable[[], object]
    _room: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(ORDERS_MAX))

    async def run(self, scope: trio.CancelScope) -> None:
        """Carry out orders until standard input ends, then cancel `scope`."""
        async with heard_orders() as orders, trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_status)
            async for line in orders:
                order = json.loads(line)
                await self._room.acquire_on_behalf_of(order["id"])
                nursery.start_soon(self._answer, order)
            scope.cancel()

    async def _tell_status(self) -> None:
        while True:
            status = self.node.status()
            say(
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
            say(id=order["id"], error=f"{type(error).__name__}: {error}")
        else:
            say(id=order["id"], value=value)
        finally:
            self._room.release_on_behalf_of(order["id"])

    async def _carry_out(self, order: dict[str, Any]) -> object:
        node = self.node
        match order["do"]:
            case "look":
                await node.read()
                return {
                    "index": node.read_stale(max_lag_s=math.inf),  # the last entry in the state
                    "broken": self.broken(),
                    "state": self.state() if order.get("state") else None,
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
