"""The requests of one connection that wait for their replies."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# Called once for each request: with the reply, or the error.
Settle: TypeAlias = Callable[[Command | RemotingError], None]

# Sixty thousand requests without a reply take about 30 MB; more are a fault.
MAX_WAITING_REQUESTS: Final = 65536

_OPAQUE_MASK: Final = (1 << 31) - 1


@dataclass(slots=True)
class WaitingRequest:
    """One request without a reply.

    Attributes:
        code: its request code.
        settle: called with the outcome.
        deadline: of the reply, on the clock of the caller of `expired`.
        timeout_s: the whole timeout, for the error.
        position: the bytes queued on the connection before its frame.
    """

    code: int
    settle: Settle
    deadline: float
    timeout_s: float
    position: int


class RequestTable:
    """Waiting requests by opaque, with a limit on their number.

    Args:
        limit: how many may wait.
        first_opaque: the first opaque. A server begins high, because the JavaScript client mistakes
            a request whose opaque equals one of its own for the reply.
    """

    def __init__(self, limit: int = MAX_WAITING_REQUESTS, first_opaque: int = 0) -> None:
        self.limit = limit
        self._waiting: dict[int, WaitingRequest] = {}
        self._due = math.inf  # no waiting request has an earlier deadline
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.limit

    def next_opaque(self) -> int:
        """Return an opaque that no waiting request has; 0 to 2**31 - 1, then from 0 again."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = (opaque + 1) & _OPAQUE_MASK
            if opaque not in self._waiting:
                return opaque

    def add(self, opaque: int, request: WaitingRequest) -> None:
        self._waiting[opaque] = request
        if request.deadline < self._due:  # noqa: PLR1730  # for each request: as fast as can be
            self._due = request.deadline

    def take(self, opaque: int) -> WaitingRequest | None:
        return self._waiting.pop(opaque, None)

    @property
    def next_deadline(self) -> float:
        """When `expired` is to be called; infinity if no request waits.

        It is the deadline of a request, which may have been answered since: to look for the
        earliest one again after each reply takes long if thousands wait.
        """
        return self._due if self._waiting else math.inf

    def expired(self, now: float) -> list[WaitingRequest]:
        """Remove and return the requests whose deadline has passed."""
        if now < self._due:
            return []
        over = [opaque for opaque, one in self._waiting.items() if one.deadline <= now]
        expired = [self._waiting.pop(opaque) for opaque in over]
        self._due = min((one.deadline for one in self._waiting.values()), default=math.inf)
        return expired

    def take_all(self) -> list[WaitingRequest]:
        all_waiting = list(self._waiting.values())
        self._waiting.clear()
        return all_waiting
