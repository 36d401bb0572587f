"""Three real brokers in this process, or fewer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

from broker.config import BrokerConfig
from broker.server import Broker, Surroundings, run_broker
from dledger.free_ports import free_addresses, free_ports
from remoting.net.address import Address
from tests.broker.one_broker import Client, Clock, until


class Group:
    """Brokers in one loop, each in a scope of its own."""

    def __init__(
        self,
        directory: Path,
        nursery: trio.Nursery,
        nameservers: tuple[str, ...],
        clock: Clock,
        settings: dict[str, Any],
        own: Mapping[str, dict[str, Any]],
        names: Sequence[str],
    ) -> None:
        self.nursery = nursery
        self.clock = clock
        self.brokers: dict[str, Broker] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.ended: dict[str, trio.Event] = {}
        peers = dict(zip(names, free_addresses(len(names)), strict=True))
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.configs = {
            node_id: BrokerConfig(
                group="broker-a",
                node_id=node_id,
                peers=peers,
                listen=Address("127.0.0.1", ports[node_id]),
                nameservers=nameservers,
                directory=directory / node_id,
                new=len(peers) == 1,  # else it waits whether other members call
                **{**settings, **own.get(node_id, {})},
            )
            for node_id in peers
        }

    async def start(self, node_id: str) -> None:
        self.brokers[node_id] = await self.nursery.start(self._run, node_id)

    async def _run(self, node_id: str, task_status: trio.TaskStatus[Broker]) -> None:
        ended = self.ended[node_id] = trio.Event()
        with trio.CancelScope() as self.scopes[node_id]:
            await run_broker(
                self.configs[node_id],
                Surroundings(self.clock, 1, lambda _time_ms: 4, lambda _directory: 10.0),
                report=lambda _line, /, **_fields: None,
                task_status=task_status,
            )
        ended.set()

    async def restart(self, node_id: str) -> None:
        """Start it anew in the same folder."""
        self.stop(node_id)
        await self.ended[node_id].wait()
        await self.start(node_id)

    def stop(self, node_id: str) -> None:
        self.scopes[node_id].cancel()
        del self.brokers[node_id]

    async def leader(self) -> tuple[str, Client]:
        """Who leads and serves, and a new client of it."""
        found: list[str] = []

        async def is_found() -> bool:
            found[:] = [n for n, b in self.brokers.items() if b.requests.led_term is not None]
            return len(found) == 1

        await until(is_found)
        return found[0], Client(self.nursery, str(self.configs[found[0]].address))


@asynccontextmanager
async def group_of_three(
    directory: Path,
    nameservers: tuple[str, ...] = (),
    clock: Clock | None = None,
    own: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    names: Sequence[str] = ("n0", "n1", "n2"),
    **settings: Any,
) -> AsyncIterator[Group]:
    """A group; `settings` are those of all members, `own` those of one.

    A test that loses no leader may have it of fewer: a broker costs a tenth of a second.
    """
    async with trio.open_nursery() as nursery:
        group = Group(directory, nursery, nameservers, clock or Clock(), settings, own, names)
        for node_id in group.configs:
            await group.start(node_id)
        yield group
        nursery.cancel_scope.cancel()
