"""Notices brokers that hold pulls and are silent, and looks for another leader.

A broker may hold a pull for 15 s, so a pull alone does not tell a queue without messages from a
broker that is frozen or cut off: neither answers, neither closes its connection. A probe that a
broker answers at once does.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.routes import Routes
from dledger_mq.errors import MessagingError
from remoting.bodies.message_queue import MessageQueue
from remoting.net.client import RemotingClient
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# How often a broker that holds pulls is probed: one small request a second for each client and
# leader. It answers in milliseconds; the shortest election takes half a second.
ASK_S: Final = 1.0
# After this time without an answer the name servers are asked for another leader.
SILENCE_S: Final = 0.5


@dataclass(slots=True)
class _Probe:
    sent_at: float
    is_answered: bool = False
    is_good: bool = False


class SilenceWatch:
    """Probes brokers that hold pulls, and refreshes the routes of a broker that does not answer."""

    def __init__(self, remoting: RemotingClient, routes: Routes) -> None:
        self._remoting = remoting
        self._routes = routes
        self._held: dict[str, Counter[MessageQueue]] = {}  # pulls by the broker that holds them
        self._probes: dict[str, _Probe] = {}

    @contextmanager
    def held_by(self, address: str, queue: MessageQueue) -> Iterator[None]:
        """Probe a broker during the block, in which it holds a pull of a queue."""
        pulls = self._held.setdefault(address, Counter())
        pulls[queue] += 1
        try:
            yield
        finally:
            pulls[queue] -= 1
            if not pulls[queue]:
                del pulls[queue]
            if not pulls:
                del self._held[address]

    async def run(self) -> None:
        while True:
            await trio.sleep(SILENCE_S / 2)
            for address in self._probes.keys() - self._held.keys():
                del self._probes[address]
            now = trio.current_time()
            silent = [address for address in self._held if self._is_silent(address, now)]
            topics = {queue.topic for address in silent for queue in self._held[address]}
            for topic in sorted(topics):
                await self._refresh(topic)

    def _is_silent(self, address: str, now: float) -> bool:
        """Return whether a broker's answer is overdue or an error; probe it when that is due."""
        probe = self._probes.get(address)
        if probe is None or (probe.is_answered and now >= probe.sent_at + ASK_S):
            self._probe(address, now)
        if probe is None:
            return False
        if probe.is_answered:
            return not probe.is_good
        return now >= probe.sent_at + SILENCE_S

    def _probe(self, address: str, now: float) -> None:
        probe = self._probes[address] = _Probe(now)
        queue = next(iter(self._held[address]))

        def settle(outcome: Command | RemotingError) -> None:
            probe.is_answered = True
            probe.is_good = isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS

        self._remoting.request_nowait(address, requests.max_offset(queue), settle)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except MessagingError as error:
            _log.info("a leader of %s is silent, and no other is known: %s", topic, error)
