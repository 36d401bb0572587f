"""Acknowledges popped messages, in batches: one request at a time for each group of brokers."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from dledger_mq.connection.calls import call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.errors import MessagingError
from dledger_mq.popping import pop_requests
from dledger_mq.popping.popped import Popped
from remoting.bodies.pop import AckedPop
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Messages of one request. Each takes some 100 bytes, far below a broker's limits.
MOST_OF_A_REQUEST: Final = 1000

_ACCEPTED: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})


class PopAcknowledging:
    """Acknowledges messages, through elections, until their invisible time is over.

    `on_acknowledged` is called with each message that is acknowledged, or whose time was over
    before.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        nursery: StartsTasks,
        on_acknowledged: Callable[[Popped], None],
    ) -> None:
        self._client = client
        self._group = group
        self._nursery = nursery
        self._on_acknowledged = on_acknowledged
        self._waiting: dict[str, list[Popped]] = {}  # by the broker that is being asked
        self._quiet = trio.lowlevel.ParkingLot()

    def add(self, popped: Popped) -> None:
        """Acknowledge a message; if its handle is about to change, once the new one is known."""
        popped.wants_acknowledgement = True
        if popped.is_being_hidden:
            return
        broker_name = popped.message.queue.broker_name
        waiting = self._waiting.get(broker_name)
        if waiting is not None:
            waiting.append(popped)
        else:
            self._waiting[broker_name] = [popped]
            self._nursery.start_soon(self._send, broker_name)

    async def drain(self) -> None:
        while self._waiting:
            await self._quiet.park()

    async def _send(self, broker_name: str) -> None:
        waiting = self._waiting[broker_name]
        await trio.lowlevel.checkpoint()  # gather the messages that are consumed in this turn
        while waiting:
            batch = waiting[:MOST_OF_A_REQUEST]
            del waiting[:MOST_OF_A_REQUEST]
            await self._acknowledge(batch)
        del self._waiting[broker_name]
        if not self._waiting:
            self._quiet.unpark_all()

    async def _acknowledge(self, these: list[Popped]) -> None:
        failures = 0
        while these:
            problem: MessagingError | RemotingError
            try:
                reply = await call_master(
                    self._client,
                    these[0].message.queue,
                    self._command(these),
                    "acknowledge messages",
                    accepted=_ACCEPTED,
                )
            except (MessagingError, RemotingError) as error:
                problem = error
            else:
                if reply.code != ResponseCode.SUCCESS:
                    _log.info("group %s: %s", self._group, reply.remark)
                break
            failures += 1
            _log.info("group %s: not acknowledged yet: %s", self._group, problem)
            await trio.sleep(pause_s(failures))
            now = trio.current_time()
            for popped in [one for one in these if one.deadline <= now]:
                self._on_acknowledged(popped)
            these = [one for one in these if one.deadline > now]
        for popped in these:
            self._on_acknowledged(popped)

    def _command(self, these: list[Popped]) -> Command:
        if len(these) == 1:
            return pop_requests.acknowledge(self._group, these[0])
        return pop_requests.acknowledge_many(
            these[0].message.queue.broker_name, [self._acked(one) for one in these]
        )

    def _acked(self, popped: Popped) -> AckedPop:
        """Acknowledge each message by itself: one that was hidden since has left its pop."""
        queue = popped.message.queue
        return AckedPop(
            self._group,
            queue.topic,
            queue.queue_id,
            popped.popped_ms,
            [popped.message.queue_offset],
            popped.kind,
            None,
            popped.invisible_ms,
            popped.check_point_queue,
        )
