"""Notices silent brokers that hold pulls, and asks the other members for the leader.

A broker may hold a pull for 15 s, so a pull alone does not tell a queue without messages from a
broker that is frozen or cut off: neither answers, neither closes its connection. A question that is
answered at once does.
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

# A broker that holds pulls is asked this often: one small request a second for each client and
# leader. It answers in milliseconds; the shortest election takes half a second.
ASK_S: Final = 1.0
# After this long without an answer the name servers are asked for another leader, as often.
SILENCE_S: Final = 0.5


@dataclass(slots=True)
class _Question:
    asked_at: float
    is_answered: bool = False
    is_good: bool = False


class SilenceWatch:
    """Asks brokers that hold pulls whether they are there; refreshes routes when one is not.

    Args:
        remoting: asks the brokers.
        routes: tells their watchers when another broker leads.
    """

    def __init__(self, remoting: RemotingClient, routes: Routes) -> None:
        self._remoting = remoting
        self._routes = routes
        self._held: dict[str, Counter[MessageQueue]] = {}  # pulls by the broker that holds them
        self._questions: dict[str, _Question] = {}

    @contextmanager
    def held_by(self, address: str, queue: MessageQueue) -> Iterator[None]:
        """A pull of this queue waits at that broker during the block."""
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
        """Watch for ever."""
        while True:
            await trio.sleep(SILENCE_S / 2)
            for address in self._questions.keys() - self._held.keys():
                del self._questions[address]
            now = trio.current_time()
            silent = [address for address in self._held if self._is_silent(address, now)]
            topics = {queue.topic for address in silent for queue in self._held[address]}
            for topic in sorted(topics):
                await self._refresh(topic)

    def _is_silent(self, address: str, now: float) -> bool:
        """Whether a broker owes an answer, or gave a bad one; asks it when that is due."""
        question = self._questions.get(address)
        is_due = question is None or (question.is_answered and now >= question.asked_at + ASK_S)
        if is_due:
            self._ask(address, now)
        if question is None:
            return False
        if question.is_answered:
            return not question.is_good
        return now >= question.asked_at + SILENCE_S

    def _ask(self, address: str, now: float) -> None:
        question = self._questions[address] = _Question(now)
        queue = next(iter(self._held[address]))

        def settle(outcome: Command | RemotingError) -> None:
            question.is_answered = True
            question.is_good = isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS

        self._remoting.request_nowait(address, requests.max_offset(queue), settle)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._routes.refresh(topic)
        except MessagingError as error:
            _log.info("a leader of %s is silent, and no other is known: %s", topic, error)
