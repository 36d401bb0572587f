"""The process of all clients: `python -m jepsen_like.chaos.clients SETTINGS.json`.

It writes the history. The line `end` on its standard input ends the calls, `final` has the last
reads made of each member; the process ends with its input.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import trio

import dledger
from jepsen_like.chance import Chance
from jepsen_like.chaos.clients.client import Client
from jepsen_like.chaos.clients.recorder import Recorder
from jepsen_like.chaos.clients.settings import ClientSettings
from jepsen_like.chaos.clients.ways import LogWay, MemberWay, Way
from jepsen_like.chaos.orders import follow_orders, say, take_output
from jepsen_like.chaos.service import Call, Described
from jepsen_like.chaos.services import find_service
from jepsen_like.history.operation import EventType
from jepsen_like.history.writer import HistoryWriter
from jepsen_like.users_modules import find_users_modules

# Attempts at one of the last reads. The group is whole again by then.
FINAL_ATTEMPTS = 20


@dataclass
class Clients:
    settings: ClientSettings
    service: Described
    recorder: Recorder
    log: dledger.RemoteLog | None
    _ends: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        counts = self.recorder.counts
        await follow_orders(lambda: counts, self._load, self._ends.set, self._make_final_calls)

    async def _load(self) -> None:
        numbers = itertools.count()
        async with trio.open_nursery() as nursery:
            for client in self._clients(numbers):
                nursery.start_soon(client.run, self._ends.is_set)
        say(ended=True)

    def _clients(self, numbers: Iterator[int]) -> Iterator[Client]:
        settings = self.settings
        names = sorted(settings.ports)
        for number in range(settings.readers):
            member = names[number % len(names)]
            way = MemberWay(settings.ports, member, settings.timeout_s)
            yield self._client(numbers, number, way, reads=True)
        for place in range(settings.writers):
            member = names[place % len(names)]
            yield self._client(
                numbers, settings.readers + place, self._writing_way(place, member), reads=False
            )

    def _writing_way(self, place: int, member: str) -> Way:
        """Return the way of a writer: half have sessions, half go through the port of a member.

        Without a log, all go through the ports, and half of them stay with their member.
        """
        timeout_s = self.settings.timeout_s
        if self.log is None:
            return MemberWay(self.settings.ports, member, timeout_s, follows=place % 2 == 0)
        match place % 4:
            case 0:
                return MemberWay(self.settings.ports, member, timeout_s, follows=True)
            case 1:
                return LogWay(self.log, timeout_s, in_session=True)
            case 2:
                return LogWay(self.log, timeout_s)
            case _:
                return MemberWay(self.settings.ports, member, timeout_s, in_session=True)

    def _client(self, numbers: Iterator[int], number: int, way: Way, *, reads: bool) -> Client:
        settings = self.settings
        return Client(
            self.service,
            self.recorder,
            Chance(settings.seed, f"client {number}"),
            numbers,
            number,
            # Readers, writers and the clients of the last reads.
            settings.readers + settings.writers + len(settings.ports),
            way,
            settings.calls_a_second,
            lambda call: call.is_read is reads,
        )

    async def _make_final_calls(self) -> None:
        calls = self.service.final()
        failed: list[str] = []
        async with trio.open_nursery() as nursery:
            for place, member in enumerate(sorted(self.settings.ports)):
                nursery.start_soon(self._final_calls_of, place, member, calls, failed)
        say(final=failed)

    async def _final_calls_of(
        self, place: int, member: str, calls: Sequence[Call], failed: list[str]
    ) -> None:
        settings = self.settings
        number = settings.readers + settings.writers + place
        way = MemberWay(settings.ports, member, settings.timeout_s)
        client = self._client(iter(()), number, way, reads=True)
        for call in calls:
            for _ in range(FINAL_ATTEMPTS):
                outcome = await client.make(call)
                if outcome.type is EventType.OK:
                    break
                await trio.sleep(0.1)
            else:
                failed.append(f"{call.function} of {member}: {outcome.error}")
        await way.close()


async def run_clients(settings: ClientSettings) -> None:
    service = find_service(settings.service)
    with HistoryWriter(Path(settings.history), **settings.header) as writer:
        recorder = Recorder(writer, lambda: time.monotonic_ns() - settings.begin_ns)
        async with AsyncExitStack() as stack:
            log: dledger.RemoteLog | None = None
            if not settings.ports_only:
                connecting = dledger.connect(dict(settings.peers), group=settings.group)
                log = await stack.enter_async_context(connecting)
            await Clients(settings, service, recorder, log).run()


def main() -> None:
    take_output()
    find_users_modules()
    settings = ClientSettings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    trio.run(run_clients, settings)


if __name__ == "__main__":
    main()
