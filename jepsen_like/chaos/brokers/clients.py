"""Producers and consumers of a run: `python -m jepsen_like.chaos.brokers.clients SETTINGS.json`.

Two consumers of one group take turns in leaving it and coming back. Orders come as to other clients
of runs: `end` ends the sends, `final` waits until the group has consumed everything.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import trio

from dledger.system_refusals import single
from dledger_mq import Admin
from dledger_mq.errors import MessagingError
from jepsen_like.chance import Chance
from jepsen_like.chaos.brokers.begun import Begun, begun_of
from jepsen_like.chaos.brokers.cpp.messages import CppMessages
from jepsen_like.chaos.brokers.cpp.process import CppEnded
from jepsen_like.chaos.brokers.everything import Everything
from jepsen_like.chaos.brokers.grpc.kinds import GrpcKinds
from jepsen_like.chaos.brokers.grpc.messages import GrpcMessages
from jepsen_like.chaos.brokers.guarded import Guarded
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.chaos.brokers.queue_locks import QueueLocks
from jepsen_like.chaos.brokers.security_files import SecurityFiles
from jepsen_like.chaos.brokers.workload import (
    Broadcast,
    Delayed,
    Messages,
    Offsets,
    Ordered,
    Popped,
    Transactional,
    Turn,
)
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.orders import follow_orders, say
from jepsen_like.history.operation import EventType
from jepsen_like.history.writer import HistoryWriter

PAUSE_S = 0.1
# How long a consumer stays in the group before it leaves and comes back.
SHORTEST_STAY_S, LONGEST_STAY_S = 6.0, 15.0
# How long the group takes to consume everything, besides the waits of messages: consumers commit
# every 5 s, and look for queues every 20 s.
DRAINED_TIMEOUT_S = 40.0

# By the names that `--workload` takes.
BROKER_WORKLOADS: dict[str, type[Messages]] = {
    "messages": Messages,
    "guarded": Guarded,
    "broadcast": Broadcast,
    "offset": Offsets,
    "queue-lock": QueueLocks,
    "ordered": Ordered,
    "delay": Delayed,
    "transaction": Transactional,
    "pop": Popped,
    "everything": Everything,
    "grpc": GrpcKinds,
}


class Traffic:
    """All producers and consumers; `begun` is what earlier clients have left."""

    def __init__(
        self, settings: dict[str, Any], workload: Messages, notes: Notes, begun: Begun
    ) -> None:
        self._settings = settings
        self._workload = workload
        self._notes = notes
        self._processes = begun.processes
        # The clients before these have made fewer turns than a million a second.
        self._numbers = itertools.count(_now_ns(settings) // 1000 if begun.processes else 0)
        self._ends = trio.Event()

    async def run(self) -> None:
        await follow_orders(
            lambda: self._notes.counts,
            self._work,
            self._ends.set,
            self._drain,
            self._workload.order,
        )

    async def _work(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._workload.operate)
            nursery.start_soon(self._produce)
            for consumer in range(self._settings["consumers"]):
                nursery.start_soon(self._consume, consumer)

    async def _produce(self) -> None:
        """Send; producers stay open for the questions of brokers after their last sends."""
        ended = [trio.Event() for _ in range(self._settings["producers"])]
        async with trio.open_nursery() as nursery:
            for place, event in enumerate(ended):
                nursery.start_soon(self._send, place, event)
            for event in ended:
                await event.wait()
            say(ended=True)

    async def _send(self, place: int, ended: trio.Event) -> None:
        settings = self._settings
        client = settings["consumers"] + place
        process = self._processes.get(client, client)
        chance = Chance(settings["seed"], f"producer {place}")
        async with self._workload.producer() as producer:
            while not self._ends.is_set():
                turn = Turn(place, process, next(self._numbers), chance, _now_ns(settings))
                outcome, process = await self._workload.send(producer, turn)
                if outcome is not EventType.OK:
                    await trio.sleep(PAUSE_S)
                await trio.sleep(chance.expovariate(settings["calls_a_second"]))
            ended.set()
            await trio.sleep_forever()

    async def _consume(self, process: int) -> None:
        """Belong to the group, and leave it now and then until the sends end."""
        chance = Chance(self._settings["seed"], f"consumer {process}")
        while True:
            async with self._workload.consumer(process):
                with trio.move_on_after(chance.uniform(SHORTEST_STAY_S, LONGEST_STAY_S)):
                    await self._ends.wait()
                if self._ends.is_set() or self._workload.stays:
                    await trio.sleep_forever()

    async def _drain(self) -> None:
        """Wait until the group has committed all messages, then note that nothing is left.

        A message that is due and was not received is waited for as long as it may have to wait.
        """
        failed = [f"the group has not committed all within {DRAINED_TIMEOUT_S:g} s"]
        waits_until = trio.current_time() + self._workload.longest_wait_s
        with trio.move_on_at(waits_until + DRAINED_TIMEOUT_S):
            async with self._workload.admin() as admin:
                while not (
                    (self._notes.all_received or trio.current_time() >= waits_until)
                    and await self._is_drained(admin)
                ):
                    await trio.sleep(PAUSE_S)
            self._workload.note_end(self._settings["consumers"], self._settings["producers"])
            failed = []
        say(final=failed)

    async def _is_drained(self, admin: Admin) -> bool:
        try:
            return await self._workload.is_drained(admin)
        except MessagingError:
            return False  # the route may be old: it is asked for again


def _now_ns(settings: dict[str, Any]) -> int:
    begin_ns: int = settings["begin_ns"]
    return time.monotonic_ns() - begin_ns


async def run_traffic(settings: dict[str, Any]) -> None:
    """Run producers and consumers until standard input ends."""
    path = Path(settings["history"])
    with HistoryWriter.going_on(path, **settings["header"]) as writer:
        begun = begun_of(writer.operations, settings["step"])
        operations = list(writer.operations)
        recorder = Recorder(writer, lambda: _now_ns(settings))
        notes = Notes(recorder, settings["step"])
        workload = _workload(settings, notes)
        notes.go_on(begun)
        workload.go_on(operations)
        await Traffic(settings, workload, notes, begun).run()


def _workload(settings: dict[str, Any], notes: Notes) -> Messages:
    nameservers = [settings["nameserver"]]
    if settings["client"] == "cpp":
        return CppMessages(notes, nameservers, Path(settings["home"]))
    if settings["security"] is not None:
        return Guarded(notes, nameservers, SecurityFiles(*map(Path, settings["security"])))
    workload: Any = BROKER_WORKLOADS[settings["workload"]]
    if settings["proxies"]:
        workload = GrpcKinds if workload is GrpcKinds else GrpcMessages
        by_proxies: Messages = workload(notes, nameservers, settings["proxies"])
        return by_proxies
    made: Messages = workload(notes, nameservers)
    return made


def main() -> None:
    """Run the clients of a run with brokers. The run shows the last line of their log."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        trio.run(run_traffic, settings)
    except* CppEnded as group:
        for error in single(group):
            logging.critical("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
