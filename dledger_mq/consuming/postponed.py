"""Messages that wait for their time, and queues whose pause ends then."""

from collections.abc import Callable

import trio

from dledger.wake_up import WakeUp
from dledger_mq.consuming.agenda import Agenda
from dledger_mq.consuming.queue_reader import QueueReader
from dledger_mq.received_message import ReceivedMessage


class Postponed:
    """What is offered to the listener later. Bounded by what the queues may cache."""

    def __init__(self) -> None:
        self._agenda: Agenda[tuple[QueueReader, list[ReceivedMessage]]] = Agenda()
        self._changed = WakeUp()

    def add(self, time: float, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        """Let messages be taken at `time`; without any, let the queue be looked at then."""
        if time < self._agenda.next_time:
            self._changed.set()
        self._agenda.add(time, (reader, messages))

    async def release(self, offer: Callable[[QueueReader], None]) -> None:
        """Offer messages and queues when their time has come, for ever."""
        while True:
            with trio.move_on_at(self._agenda.next_time):
                await self._changed.wait()
            for reader, messages in self._agenda.take_due(trio.current_time()):
                if not reader.dropped:
                    reader.cached.give_back(messages)
                    offer(reader)
