"""Producers and consumers of a run: `python -m jepsen_like.chaos.brokers.messages SETTINGS.json`.

Producers send numbers; two consumers of one group take turns in leaving it and coming back. All of
it is noted in one history of `send`, `receive` and, in the end, `drain`. Orders come as to other
clients of runs: `end` ends the sends, `final` waits until the group has consumed everything.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from dledger_mq import (
    Admin,
    ConsumeFrom,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from dledger_mq.errors import MessagingError, OutcomeUnknown, SendFailed
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.members.control import lines_of
from jepsen_like.chaos.service import Call
from jepsen_like.history.operation import EventType
from jepsen_like.history.writer import HistoryWriter
from jepsen_like.simulation.chance import Chance

TOPIC, GROUP = "chaos", "chaos-readers"
SEND_TIMEOUT_S = 3.0
TELL_EVERY_S = 0.5
PAUSE_S = 0.1
# A consumer stays in the group for so long, then leaves and comes back.
SHORTEST_STAY_S, LONGEST_STAY_S = 6.0, 15.0
# The group has consumed everything by then: a rebalance takes up to 20 s.
DRAINED_TIMEOUT_S = 40.0


class Messages:
    """All producers and consumers."""

    def __init__(self, settings: dict[str, Any], recorder: Recorder) -> None:
        self._settings = settings
        self._recorder = recorder
        self._numbers = itertools.count()
        self._nameservers = [settings["nameserver"]]
        self._acknowledged: set[int] = set()
        self._received: set[int] = set()
        self._ends = trio.Event()

    async def run(self, orders: AsyncIterator[str]) -> None:
        """Send and consume as the orders say, until there are no more orders."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell)
            nursery.start_soon(self._produce)
            for consumer in range(self._settings["consumers"]):
                nursery.start_soon(self._consume, consumer)
            async for order in orders:
                if order == "end":
                    self._ends.set()
                elif order == "final":
                    nursery.start_soon(self._drain)
            nursery.cancel_scope.cancel()

    # --- producers ------------------------------------------------------------------------------

    async def _produce(self) -> None:
        async with trio.open_nursery() as nursery:
            for producer in range(self._settings["producers"]):
                nursery.start_soon(self._send, producer)
        _say(ended=True)

    async def _send(self, place: int) -> None:
        settings = self._settings
        process, step = settings["consumers"] + place, settings["consumers"] + settings["producers"]
        chance = Chance(settings["seed"], f"producer {place}")
        async with Producer(
            "chaos-writers", nameservers=self._nameservers, timeout_seconds=SEND_TIMEOUT_S
        ) as producer:
            while not self._ends.is_set():
                number = next(self._numbers)
                call = Call("send", value=number)
                self._recorder.note(process, EventType.INVOKE, call, number, None)
                outcome, error = await self._sent(producer, number)
                told = number if outcome is EventType.OK else None
                self._recorder.note(process, outcome, call, told, None, error)
                if outcome is EventType.INFO:
                    process += step
                if outcome is not EventType.OK:
                    await trio.sleep(PAUSE_S)
                await trio.sleep(chance.expovariate(settings["calls_a_second"]))

    async def _sent(self, producer: Producer, number: int) -> tuple[EventType, str | None]:
        try:
            await producer.send(Message(TOPIC, str(number).encode()))
        except OutcomeUnknown as error:
            return EventType.INFO, str(error)
        except SendFailed as error:
            return EventType.FAIL, str(error)
        self._acknowledged.add(number)
        return EventType.OK, None

    # --- consumers ------------------------------------------------------------------------------

    async def _consume(self, process: int) -> None:
        """Belong to the group, and leave it now and then until the sends end."""
        chance = Chance(self._settings["seed"], f"consumer {process}")

        async def listen(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            numbers = [int(message.body) for message in messages]
            self._received.update(numbers)
            self._receive(process, "receive", numbers)
            return ConsumeResult.SUCCESS

        while True:
            async with PushConsumer(
                GROUP,
                TOPIC,
                listen,
                nameservers=self._nameservers,
                consume_from=ConsumeFrom.FIRST,
            ):
                with trio.move_on_after(chance.uniform(SHORTEST_STAY_S, LONGEST_STAY_S)):
                    await self._ends.wait()
                if self._ends.is_set():
                    await trio.sleep_forever()

    def _receive(self, process: int, function: str, numbers: Sequence[int]) -> None:
        """A delivery takes no time: it is noted when it is there."""
        call = Call(function)
        self._recorder.note(process, EventType.INVOKE, call, None, None)
        self._recorder.note(process, EventType.OK, call, list(numbers), None)

    async def _drain(self) -> None:
        """Wait until the group has committed all there is, then note that nothing is left."""
        failed = [f"the group has not consumed all within {DRAINED_TIMEOUT_S:g} s"]
        with trio.move_on_after(DRAINED_TIMEOUT_S):
            async with Admin(nameservers=self._nameservers) as admin:
                while not await self._is_drained(admin):
                    await trio.sleep(PAUSE_S)
            self._receive(0, "drain", ())
            failed = []
        _say(final=failed)

    async def _is_drained(self, admin: Admin) -> bool:
        try:
            progress = await admin.progress(TOPIC, GROUP)
        except MessagingError:
            return False  # the route may be old: it is asked for again
        return bool(progress) and all(row.lag == 0 for row in progress)

    # --- telling --------------------------------------------------------------------------------

    async def _tell(self) -> None:
        while True:
            _say(counts=dict(self._recorder.counts))
            await trio.sleep(TELL_EVERY_S)


def _say(**fields: object) -> None:
    with suppress(BrokenPipeError):  # the run is gone: standard input ends, too
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


async def run_messages(settings: dict[str, Any]) -> None:
    """Run producers and consumers until standard input ends."""
    with HistoryWriter(Path(settings["history"]), **settings["header"]) as writer:
        recorder = Recorder(writer, lambda: time.monotonic_ns() - settings["begin_ns"])
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as orders:
            await Messages(settings, recorder).run(lines_of(orders))


def main() -> None:
    """Run the clients of a run with brokers."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    trio.run(run_messages, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
