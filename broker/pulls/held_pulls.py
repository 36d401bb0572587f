"""Pulls that wait for a message: RocketMQ's long polling, without a task or an event for each."""

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Final

from broker.pulls.request import PullRequest
from broker.serving.origin import Origin
from remoting.wire.command import Command

# The heap keeps deadlines of pulls that were answered meanwhile; it is made anew when it has more
# than this beside twice the pulls that still wait.
_STALE_DEADLINES: Final = 1024

# Tags of one pull that are not counted apart; most consumers have fewer.
_CODES_PER_WEIGHT: Final = 16


class HeldPull:
    """One pull that waits.

    Attributes:
        origin: the client.
        command: the request, as far as its reply needs it.
        request: the same, read.
        deadline: on the monotonic clock, in seconds.
        weight: as how many pulls it counts. The hashes of some tags take as much memory as a pull.
    """

    __slots__ = ("command", "deadline", "origin", "request", "weight")

    def __init__(
        self, origin: Origin, command: Command, request: PullRequest, deadline: float
    ) -> None:
        self.origin = origin
        self.command = command
        self.request = request
        self.deadline = deadline
        self.weight = 1 + len(request.wanted.codes or ()) // _CODES_PER_WEIGHT


class HeldPulls:
    """The waiting pulls by queue, with their deadlines.

    Args:
        limit: how many may wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_origin: dict[Origin, dict[HeldPull, None]] = {}
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._count = 0
        self._weight = 0
        self._last_number = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[HeldPull]:
        """All waiting pulls."""
        return [held for waiting in self._by_origin.values() for held in waiting]

    def has_room(self, held: HeldPull) -> bool:
        """Whether the pull may wait, by the limit of waiting pulls."""
        return self._weight + held.weight <= self._limit

    def add(self, held: HeldPull) -> None:
        """Let a pull wait. The caller looks at `has_room` first."""
        key = (held.request.topic, held.request.queue_id)
        self._by_queue.setdefault(key, {})[held] = None
        self._by_origin.setdefault(held.origin, {})[held] = None
        self._count += 1
        self._weight += held.weight
        self._last_number += 1
        heapq.heappush(self._deadlines, (held.deadline, self._last_number, held))
        if len(self._deadlines) > 2 * self._count + _STALE_DEADLINES:
            self._deadlines = [one for one in self._deadlines if self._waits(one[2])]
            heapq.heapify(self._deadlines)

    def take_arrived(self, topic: str, queue_id: int, codes: Collection[int]) -> list[HeldPull]:
        """Messages with these tag hashes came to a queue: the pulls that want one."""
        waiting = self._by_queue.get((topic, queue_id))
        if not waiting:
            return []
        return self._take([held for held in waiting if held.request.wanted.wants_any(codes)])

    def take_expired(self, now: float) -> list[HeldPull]:
        """The pulls whose time is over."""
        expired: list[HeldPull] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            held = heapq.heappop(self._deadlines)[2]
            if self._waits(held):
                expired.append(held)
        return self._take(expired)

    def take_matching(self, matches: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """The pulls for which `matches` is true; looks at all of them."""
        return self._take([held for held in self.all() if matches(held)])

    def drop(self, origin: Origin) -> None:
        """A client is gone, and its pulls with it."""
        self._take(list(self._by_origin.get(origin, ())))

    def _waits(self, held: HeldPull) -> bool:
        return held in self._by_origin.get(held.origin, ())

    def _take(self, taken: Iterable[HeldPull]) -> list[HeldPull]:
        taken = list(taken)
        for held in taken:
            self._count -= 1
            self._weight -= held.weight
            for table, key in (
                (self._by_queue, (held.request.topic, held.request.queue_id)),
                (self._by_origin, held.origin),
            ):
                waiting = table[key]  # type: ignore[index]
                del waiting[held]
                if not waiting:
                    del table[key]  # type: ignore[arg-type]
        return taken
