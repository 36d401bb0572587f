"""Clients that post orders to a server and note what became of each."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

CLIENTS = 20
# Of the documented programs: the first for messages, the second for entries of the log.
PATHS = ("/messages", "/entries")
# Longer than any time limit of the programs: a request without an answer for so long is a hang.
ANSWER_MAX_S = 40.0
_PAUSE_S = 0.05  # before the next try after an answer "not taken"


class Outcome(Enum):
    """What a client knows of an order."""

    TAKEN = "taken"
    NOT_TAKEN = "not taken"
    UNKNOWN = "unknown"
    REFUSED = "refused"  # no connection was made


_OUTCOMES = {201: Outcome.TAKEN, 503: Outcome.NOT_TAKEN, 504: Outcome.UNKNOWN}


class Posted(NamedTuple):
    """One request and its outcome."""

    path: str
    order: str
    outcome: Outcome
    ended_at_s: float
    text: str


class Load:
    """Twenty clients; each posts one order after the other, to both paths in turn.

    Attributes:
        posted: all requests that have ended.
        hung: those that had no answer within ANSWER_MAX_S.
    """

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._name = name
        self._ends = threading.Event()
        self.posted: list[Posted] = []
        self.hung: list[str] = []
        self._clients = [
            threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)
        ]

    def start(self) -> None:
        """Begin to post."""
        for client in self._clients:
            client.start()

    def stop(self) -> None:
        """Post no more, and wait for the answers."""
        self._ends.set()
        for client in self._clients:
            client.join()

    def taken(self, path: str) -> set[str]:
        """The orders that were acknowledged."""
        return self._with(path, Outcome.TAKEN)

    def never_taken(self, path: str) -> set[str]:
        """The orders that were not taken for certain."""
        certain = self._with(path, Outcome.NOT_TAKEN) | self._with(path, Outcome.REFUSED)
        return certain - self._with(path, Outcome.TAKEN) - self._with(path, Outcome.UNKNOWN)

    def counts(self) -> Counter[str]:
        """How many requests ended in which way."""
        return Counter(posted.outcome.value for posted in self.posted)

    def texts(self) -> Counter[str]:
        """What answers other than 201 said."""
        return Counter(each.text for each in self.posted if each.outcome is not Outcome.TAKEN)

    def wait_for(self, count: int, timeout_s: float = 60) -> None:
        """Wait until so many more orders were taken on each path."""
        limit = time.monotonic() + timeout_s
        wanted = {path: len(self.taken(path)) + count for path in PATHS}
        while any(len(self.taken(path)) < least for path, least in wanted.items()):
            assert time.monotonic() < limit, f"not {wanted}: {self.counts()} {self.texts()}"
            time.sleep(0.05)

    def longest_silence_s(self, path: str) -> float:
        """The longest time without an order that was taken."""
        times = sorted(
            each.ended_at_s
            for each in self.posted
            if each.path == path and each.outcome is Outcome.TAKEN
        )
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def _with(self, path: str, outcome: Outcome) -> set[str]:
        return {each.order for each in self.posted if each.path == path and each.outcome is outcome}

    def _run(self, client: int) -> None:
        paths = itertools.cycle(PATHS)
        orders = (f"{self._name}-{client}-{number}" for number in itertools.count())
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_MAX_S)
        for order, path in zip(orders, paths, strict=False):
            for posted in self._tries(connection, path, order):
                self.posted.append(posted)
                if self._ends.is_set():
                    connection.close()
                    return

    def _tries(
        self, connection: http.client.HTTPConnection, path: str, order: str
    ) -> Iterator[Posted]:
        """Post an order until it is taken, or until nobody knows whether it is."""
        while True:
            outcome, text = self._post(connection, path, order)
            yield Posted(path, order, outcome, time.monotonic(), text)
            if outcome in {Outcome.TAKEN, Outcome.UNKNOWN}:
                return
            time.sleep(_PAUSE_S)

    def _post(
        self, connection: http.client.HTTPConnection, path: str, order: str
    ) -> tuple[Outcome, str]:
        try:
            if connection.sock is None:
                connection.connect()
        except OSError as error:
            return Outcome.REFUSED, repr(error)
        try:
            connection.request("POST", path, order)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, TimeoutError):
                self.hung.append(order)
            return Outcome.UNKNOWN, repr(error)
        return _OUTCOMES.get(response.status, Outcome.UNKNOWN), f"{response.status} {text[:300]}"


@contextmanager
def load(port: int, name: str) -> Iterator[Load]:
    """Post orders to a server during a block."""
    running = Load(port, name)
    running.start()
    try:
        yield running
    finally:
        running.stop()
