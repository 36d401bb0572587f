"""The reads that were asked of this member and are not done: each ends within a bounded time."""

from __future__ import annotations

from collections import deque


class OpenReads:
    """Tickets in the order they came, each with the moment it is given up at."""

    __slots__ = ("_deadlines", "_new", "_open", "_wait_s")

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._new: list[int] = []
        self._open: set[int] = set()
        self._deadlines: deque[tuple[float, int]] = deque()

    @property
    def is_any(self) -> bool:
        """Whether a read is open."""
        return bool(self._open)

    def begin(self, ticket: int) -> None:
        """A read begins; its time runs from the next `stamp`."""
        self._new.append(ticket)
        self._open.add(ticket)

    def stamp(self, now: float) -> None:
        """The reads that began since the last call began now."""
        if self._new:
            self._deadlines.extend((now + self._wait_s, ticket) for ticket in self._new)
            self._new.clear()

    def finish(self, ticket: int) -> None:
        """A read is done."""
        self._open.discard(ticket)

    def expire(self, now: float) -> list[int]:
        """The reads whose time is over, once."""
        expired = []
        while self._deadlines and (
            self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._open
        ):
            _, ticket = self._deadlines.popleft()
            if ticket in self._open:
                self._open.remove(ticket)
                expired.append(ticket)
        return expired

    @property
    def next_deadline(self) -> float:
        """When the next read is given up."""
        return self._deadlines[0][0] if self._deadlines else float("inf")
