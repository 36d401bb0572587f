"""The messages that a consumer has popped, and that are not settled."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import trio

from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Client
from dledger_mq.consuming.agenda import Agenda
from dledger_mq.errors import MessagingError
from dledger_mq.popping import pop_requests
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.popping.popped import Popped
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

_HIDDEN_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE})

# The shortest invisible time that brokers accept: the message is redelivered at once.
AT_ONCE_S: Final = 0.001

# For the messages that are given back at the end of the consumer.
_LAST_TIMEOUT_S: Final = 1.0


class HeldMessages:
    """Keeps popped messages invisible to others while this consumer has them.

    A message is renewed at half of its invisible time. If that does not succeed in time, it may be
    another consumer's, and is given up. `on_settled` is called with each message that is settled,
    or whose time is over. `acknowledge` takes messages that waited for the end of a renewal.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        options: PopOptions,
        nursery: StartsTasks,
        on_settled: Callable[[Popped], None],
        acknowledge: Callable[[Popped], None],
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._nursery = nursery
        self._on_settled = on_settled
        self._acknowledge = acknowledge
        self._held: set[Popped] = set()
        self._asking: dict[Popped, trio.Event] = {}  # requests that change an invisible time
        self._reserved = 0
        self._agenda: Agenda[Popped] = Agenda()
        self._room = trio.lowlevel.ParkingLot()  # the readers of several queues wait for it

    def __len__(self) -> int:
        return len(self._held)

    async def reserve_room(self, most: int) -> int:
        """Wait for room; reserve it for up to `most` messages, and return for how many."""
        while (room := self._options.max_held_messages - len(self._held) - self._reserved) <= 0:
            await self._room.park()
        reserved = min(room, most)
        self._reserved += reserved
        return reserved

    def end_reservation(self, reserved: int) -> None:
        """End a reservation: its messages were added, or do not come."""
        self._reserved -= reserved
        self._room.unpark_all()

    def add(self, popped: Popped) -> None:
        self._held.add(popped)
        self._schedule(popped)

    def settle(self, popped: Popped) -> None:
        """End holding a message: it is acknowledged, hidden or given up."""
        if not popped.is_settled:
            popped.is_settled = True
            self._held.discard(popped)
            self._room.unpark_all()
            self._on_settled(popped)

    async def hide(self, popped: Popped, hide_s: float) -> bool:
        """Change a message's invisible time, after which it is redelivered; settle it here.

        Tried through elections until its time is over, when it is redelivered anyway.

        Returns:
            Whether a broker has done so; False if the message is not this consumer's any more.
        """
        is_hidden = await self._ask(popped, hide_s)
        self.settle(popped)
        return is_hidden

    async def give_back_all(self) -> None:
        """Make all messages visible to the other members now, if brokers answer at once."""
        wanted = [one for one in self._held if not one.wants_acknowledgement]
        await self._client.request_all(self._givings_back(wanted), _LAST_TIMEOUT_S)
        for one in wanted:
            self.settle(one)

    def give_back_now(self, wanted: Sequence[Popped]) -> None:
        """Make messages that come too late visible again; do not wait for the answers."""
        for address, command in self._givings_back(wanted):
            self._client.remoting.request_nowait(address, command, lambda _outcome: None)
        for one in wanted:
            self.settle(one)

    def _givings_back(self, wanted: Sequence[Popped]) -> list[tuple[str, Command]]:
        found: list[tuple[str, Command]] = []
        for one in wanted:
            route = self._client.routes.known(one.message.queue.topic)
            address = route and route.masters.get(one.message.queue.broker_name)
            if address:
                found.append((address, self._hiding(one, AT_ONCE_S)))
        return found

    async def renew_forever(self) -> None:
        while True:
            for popped in await self._agenda.due():
                if not popped.is_settled:
                    self._is_due(popped)

    def _schedule(self, popped: Popped) -> None:
        """Check a message at half of its time, or at its end if it is not renewed."""
        now = trio.current_time()
        at = now + (popped.deadline - now) / 2
        if at > popped.taken + self._options.longest_call_s or popped.wants_acknowledgement:
            at = popped.deadline
        self._agenda.add(at, popped)

    def _is_due(self, popped: Popped) -> None:
        now = trio.current_time()
        if now >= popped.deadline:
            self._give_up(popped)
        elif (
            now > popped.taken + self._options.longest_call_s
            or popped.is_being_hidden
            # A renewal that overtook the acknowledgement would make its handle invalid.
            or popped.wants_acknowledgement
        ):
            self._schedule(popped)
        else:
            self._nursery.start_soon(self._renew, popped)

    async def _renew(self, popped: Popped) -> None:
        if await self._ask(popped, self._options.invisible_s) and not popped.is_settled:
            self._schedule(popped)
        else:
            self._give_up(popped)

    def _give_up(self, popped: Popped) -> None:
        if not popped.is_settled:
            _log.info(
                "group %s: message %s of %s was not done in its time: it comes again",
                self._group,
                popped.message.message_id,
                popped.message.queue,
            )
        self.settle(popped)

    async def _ask(self, popped: Popped, hide_s: float) -> bool:
        """Change a message's invisible time; return False if it is not this consumer's any more."""
        while popped in self._asking:
            await self._asking[popped].wait()
        answered = self._asking[popped] = trio.Event()
        popped.is_being_hidden = True
        try:
            return await self._ask_in_time(popped, hide_s)
        finally:
            answered.set()
            del self._asking[popped]
            popped.is_being_hidden = False
            if popped.wants_acknowledgement and not popped.is_settled:
                self._acknowledge(popped)

    async def _ask_in_time(self, popped: Popped, hide_s: float) -> bool:
        began = trio.current_time()
        queue = popped.message.queue
        try:
            reply = await call_master(
                self._client,
                queue,
                self._hiding(popped, hide_s),
                "change a message's invisible time",
                accepted=_HIDDEN_OR_NOT,
                timeout_s=popped.deadline - began,
            )
            if reply.code != ResponseCode.SUCCESS:
                return False
            popped.popped_ms = reply.integer("popTime")
            popped.invisible_ms = reply.integer("invisibleTime")
            popped.check_point_queue = reply.integer("reviveQid", 0)
        except (MessagingError, RemotingError) as error:
            _log.info("message %s of %s: %s", popped.message.message_id, queue, error)
            return False
        popped.deadline = began + hide_s
        return True

    def _hiding(self, popped: Popped, hide_s: float) -> Command:
        return pop_requests.hide(self._group, popped, max(round(hide_s * 1000), 1))
