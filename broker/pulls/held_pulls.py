"""Pulls that wait for a message: RocketMQ's long polling, without a task or an event for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.access.shares import USER_SHARES, Counts
from broker.pulls.request import PullRequest
from broker.serving.deadlines import Deadlines
from broker.serving.origin import Origin
from broker.serving.parts import Shared
from remoting.wire.command import Command

# Pulls that are examined or answered in one step; an answer takes about 60 microseconds.
PULLS_A_STEP: Final = 16

# A client pulls each of its queues once; a topic has 1024 at most. A client with more pulls must
# leave room for others, and its disconnection must not take long.
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
        self._by_origin: dict[Origin, dict[HeldPull, None]] = {}
        self._ends = Deadlines(self._waits, PULLS_A_STEP)
        self._count = 0
        self._weight = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[HeldPull]:
        return [held for waiting in self._by_origin.values() for held in waiting]

    def of_queue(self, topic: str, queue_id: int) -> list[HeldPull]:
        return list(self._by_queue.get((topic, queue_id), ()))

    def has_room(self, held: HeldPull) -> bool:
        """Return whether the pull may wait, by the limits of all pulls and of its client."""
        of_client = len(self._by_origin.get(held.origin, ()))
        return self._weight + held.weight <= self._limit and of_client < MAX_HELD_PULLS_A_CLIENT

    def add(self, held: HeldPull) -> None:
        """Add a pull. Callers check `has_room` first."""
        key = (held.request.topic, held.request.queue_id)
        self._by_queue.setdefault(key, {})[held] = None
        self._by_origin.setdefault(held.origin, {})[held] = None
        self._count += 1
        self._weight += held.weight
        self._users.add(held.user)
        self._ends.add(held.deadline, held, self._count)

    def take(
        self, waiting: Sequence[HeldPull], wanted: Callable[[HeldPull], bool]
    ) -> Iterator[list[HeldPull]]:
        """Examine pulls a few at a time; take those that are wanted and still wait.

        Pulls may be added or removed between steps.
        """
        for at in range(0, len(waiting), PULLS_A_STEP):
            few = waiting[at : at + PULLS_A_STEP]
            yield self._take([held for held in few if self._waits(held) and wanted(held)])

    def take_expired(self, now: float) -> list[HeldPull]:
        return self._take(self._ends.take(now))

    def take_all(self) -> list[HeldPull]:
        taken = self.all()
        for held in taken:
            self._users.remove(held.user)
        self._by_queue, self._by_origin = {}, {}
        self._ends.clear()
        self._count = self._weight = 0
        return taken

    def drop(self, origin: Origin) -> None:
        self._take(list(self._by_origin.get(origin, ())))

    def _waits(self, held: HeldPull) -> bool:
        return held in self._by_origin.get(held.origin, ())

    def _take(self, taken: Iterable[HeldPull]) -> list[HeldPull]:
        taken = list(taken)
        for held in taken:
            self._count -= 1
            self._weight -= held.weight
            self._users.remove(held.user)
            for table, key in (
                (self._by_queue, (held.request.topic, held.request.queue_id)),
                (self._by_origin, held.origin),
            ):
                waiting = table[key]  # type: ignore[index]
                del waiting[held]
                if not waiting:
                    del table[key]  # type: ignore[arg-type]
        return taken


HELD_PULLS: Final = Shared(
    "held pulls",
    lambda parts: HeldPulls(parts.config.limits.max_held_pulls, parts[USER_SHARES].held),
)
