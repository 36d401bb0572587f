"""A broker whose clock the test moves, and producers of it that use transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from broker.server import Broker
from broker.transactions.checks import CHECKS
from broker.transactions.ends import ENDS
from broker.transactions.state import TRANSACTIONS, Transactions
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.message.message_id import parse_message_id
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.one_broker import START_MS, Client, Clock, running_broker, until

HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01key\x02"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Transacting:
    """A client of the broker, which is a producer of group P once it has said so."""

    def __init__(self, broker: Broker, nursery: trio.Nursery, clock: Clock) -> None:
        self.broker = broker
        self.nursery = nursery
        self.clock = clock
        self.client = self.another()

    def another(self) -> Client:
        """A further client."""
        return Client(self.nursery, str(self.broker.config.address))

    @property
    def transactions(self) -> Transactions:
        return self.broker.machine.state[TRANSACTIONS]

    async def half(
        self, body: bytes = b"x", topic: str = "T", properties: str = HALF, queue_id: int = 0
    ) -> Command:
        """Send a message that waits for its transaction."""
        return await self.client.send(topic, body, queue_id, f=4, i=properties)

    async def end(self, half: Command, how: int, **more: Any) -> Command:
        """End the transaction of a message."""
        fields: dict[str, Any] = {
            "producerGroup": "P",
            "tranStateTableOffset": half.fields["queueOffset"],
            "commitLogOffset": position(half),
            "commitOrRollback": how,
            "msgId": half.fields["transactionId"],
            **more,
        }
        return await self.client.ask(RequestCode.END_TRANSACTION, **fields)

    async def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """What a consumer sees."""
        reply = await self.client.pull(topic, 0, queue_id)
        return [message.body for message in decode_records(reply.body)] if reply.body else []

    async def register(self, client: Client, *groups: str) -> None:
        """Let a client be a producer of groups."""
        reply = await client.ask(34, encode_heartbeat(Heartbeat("c", list(groups))))
        assert reply.code == 0

    async def look(self, at_ms: int) -> None:
        """Let it be so late, and what is due be asked or given up."""
        self.clock.now_ms = START_MS + at_ms
        checks, ends = self.broker.parts[CHECKS], self.broker.parts[ENDS]
        checks.look()

        async def is_quiet() -> bool:
            return not checks._asked and not ends._under_way

        await until(is_quiet)
        await self.client.ask(28)  # an answer behind all that

    async def question(self, client: Client) -> Command:
        """The next question that a client was asked."""
        with trio.fail_after(5):
            while not client.notices:
                await client.noticed.wait()
        return client.notices.pop(0)


def position(half: Command) -> int:
    """Where a message lies."""
    return parse_message_id(half.fields["msgId"]).physical_offset


@asynccontextmanager
async def transacting(
    directory: Path, *, clock: Clock | None = None, **more: Any
) -> AsyncIterator[Transacting]:
    clock = clock or Clock()
    async with running_broker(directory, clock=clock, **more) as (broker, nursery):
        yield Transacting(broker, nursery, clock)
