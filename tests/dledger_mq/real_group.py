"""A real name server and a real broker of one member in this process, and `dledger-mq` on them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from click.testing import CliRunner, Result

from broker.server import Broker
from broker.topics.own_topics import standing_topics
from dledger_mq import Admin, Client
from dledger_mq.__main__ import main
from nameserver.server import serve_nameserver
from tests.broker.one_broker import running_broker


class RealGroup:
    """What a test has of it.

    Attributes:
        names: the name server's address.
        broker: the broker.
        client: an open client.
        admin: an open administrator.
    """

    def __init__(self, names: str, broker: Broker, client: Client, admin: Admin) -> None:
        self.names = names
        self.broker = broker
        self.client = client
        self.admin = admin

    async def command(self, *arguments: str) -> Result:
        """What `dledger-mq` says, into a pipe."""
        whole = [*arguments, "--nameserver", self.names]
        return await trio.to_thread.run_sync(partial(CliRunner().invoke, main, whole))

    async def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows that a command prints as JSON."""
        ended = await self.command(*arguments, "--json")
        assert ended.exit_code == 0, ended.output
        return [json.loads(line) for line in ended.stdout.splitlines()]


def wall_clock_ms() -> int:
    """The clock for a test in which brokers do something later."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def real_group(directory: Path, **settings: Any) -> AsyncIterator[RealGroup]:
    """A name server, a broker that it knows, and a client of them."""
    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve_nameserver, "127.0.0.1", 0)
        names = str(address)
        async with (
            running_broker(directory, nameservers=(names,), **settings) as (broker, _nursery),
            Client([names]) as client,
            Admin(client=client) as admin,
        ):
            # The topics that always exist come with a registration of their own.
            standing = {config.topic for config in standing_topics(broker.config)}
            with trio.fail_after(10):
                while not standing <= set(await admin.topics()):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            yield RealGroup(names, broker, client, admin)
        nursery.cancel_scope.cancel()
