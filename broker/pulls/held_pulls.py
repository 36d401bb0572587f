"""Pulls that wait for a message: RocketMQ's long polling, without a task or an event for each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.access.shares import USER_SHARES, Counts
from broker.pulls.request import PullRequest
from broker.serving.origin import Origin
from broker.serving.parts import Shared
from broker.serving.waiting_requests import WaitingRequests
from remoting.wire.command import Command

# Pulls that are examined or answered in one step; an answer takes about 60 microseconds.
PULLS_A_STEP: Final = 16

# A client pulls each of its queues once; a topic has 1024 at most. A client with more pulls must
# leave room for others.
MAX_HELD_PULLS_A_CLIENT: Final = 10_000

# The hashes of so many tags take as much memory as a pull; most consumers have fewer tags.
_CODES_PER_WEIGHT: Final = 16


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that waits.

    Attributes:
        command: the request, without its content.
        deadline: on the monotonic clock, in seconds.
        user: whose share of waiting requests it counts in; None if it counts in no share.
    """

    origin: Origin
    command: Command
    request: PullRequest
    deadline: float
    user: str | None = None

    @property
    def weight(self) -> int:
        """How many pulls it counts as."""
        return 1 + len(self.request.wanted.codes or ()) // _CODES_PER_WEIGHT


class HeldPulls:
    """The waiting pulls by queue, with their deadlines."""

    def __init__(self, limit: int, users: Counts) -> None:
        self._limit = limit
        self._users = users
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._requests = WaitingRequests[HeldPull](PULLS_A_STEP)
        self._weight = 0

    def __len__(self) -> int:
        return len(self._requests)

    def all(self) -> list[HeldPull]:
        return self._requests.all()

    def of_queue(self, topic: str, queue_id: int) -> list[HeldPull]:
        return list(self._by_queue.get((topic, queue_id), ()))

    def has_room(self, held: HeldPull) -> bool:
        """Return whether the pull may wait, by the limits of all pulls and of its client."""
        of_client = self._requests.count_of(held.origin)
        return self._weight + held.weight <= self._limit and of_client < MAX_HELD_PULLS_A_CLIENT

    def add(self, held: HeldPull) -> None:
        """Add a pull. Callers check `has_room` first."""
        key = (held.request.topic, held.request.queue_id)
        self._by_queue.setdefault(key, {})[held] = None
        self._requests.add(held)
        self._weight += held.weight
        self._users.add(held.user)

    def take(
        self, waiting: Sequence[HeldPull], wanted: Callable[[HeldPull], bool]
    ) -> Iterator[list[HeldPull]]:
        """Examine pulls a few at a time; take those that are wanted and still wait.

        Pulls may be added or removed between steps.
        """
        for at in range(0, len(waiting), PULLS_A_STEP):
            few = waiting[at : at + PULLS_A_STEP]
            yield self._take([held for held in few if self._requests.has(held) and wanted(held)])

    def take_expired(self, now: float) -> list[HeldPull]:
        return self._take(self._requests.expired(now))

    def take_all(self) -> list[HeldPull]:
        for waiting in self._by_queue.values():
            for held in waiting:
                self._users.remove(held.user)
        self._by_queue, self._weight = {}, 0
        return self._requests.take_all()

    def drop(self, origin: Origin) -> Iterator[None]:
        """Drop the pulls of a client, in steps: see `WaitingRequests.drop`."""
        return self._requests.drop(origin, self._forget)

    def _take(self, taken: list[HeldPull]) -> list[HeldPull]:
        for held in taken:
            self._requests.remove(held)
            self._forget(held)
        return taken

    def _forget(self, held: HeldPull) -> None:
        key = (held.request.topic, held.request.queue_id)
        waiting = self._by_queue.get(key, {})
        if held not in waiting:
            return  # all were taken meanwhile
        del waiting[held]
        if not waiting:
            del self._by_queue[key]
        self._weight -= held.weight
        self._users.remove(held.user)


HELD_PULLS: Final = Shared(
    "held pulls",
    lambda parts: HeldPulls(parts.config.limits.max_held_pulls, parts[USER_SHARES].held),
)
