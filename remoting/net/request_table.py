"""Requests of one connection that wait for their replies."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# Called once for each request: with the reply, or with the reason why there is none.
Settle: TypeAlias = Callable[[Command | RemotingError], None]

# A reader that answers 60 thousand requests late holds about 30 MB for them; more is a fault.
MAX_WAITING_REQUESTS: Final = 65536

_OPAQUE_MASK: Final = (1 << 31) - 1


@dataclass(slots=True)
class WaitingRequest:
    """One request without a reply.

    Attributes:
        code: its request code.
        settle: called with the outcome.
        deadline: when to give up, on the clock of the caller of `expired`.
        timeout_s: how long that was, for the error.
        position: how many bytes were queued on the connection before its frame.
    """

    code: int
    settle: Settle
    deadline: float
    timeout_s: float
    position: int


class RequestTable:
    """Waiting requests by opaque, with a bound on their number.

    Args:
        limit: how many may wait.
        first_opaque: the first number given out. A server begins high, because the JavaScript
            client takes a request whose opaque equals one of its own for the reply.
    """

    def __init__(self, limit: int = MAX_WAITING_REQUESTS, first_opaque: int = 0) -> None:
        self.limit = limit
        self._waiting: dict[int, WaitingRequest] = {}
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether no further request may wait."""
        return len(self._waiting) >= self.limit

    def next_opaque(self) -> int:
        """A number no waiting request has; 0 to 2**31 - 1, then from 0 again."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = (opaque + 1) & _OPAQUE_MASK
            if opaque not in self._waiting:
                return opaque

    def add(self, opaque: int, request: WaitingRequest) -> None:
        """Let a request wait under a number of `next_opaque`."""
        self._waiting[opaque] = request

    def take(self, opaque: int) -> WaitingRequest | None:
        """Remove and return the request that waits under `opaque`."""
        return self._waiting.pop(opaque, None)

    @property
    def next_deadline(self) -> float:
        """The first deadline of all; infinity for none."""
        return min((one.deadline for one in self._waiting.values()), default=math.inf)

    def expired(self, now: float) -> list[WaitingRequest]:
        """Take the requests whose deadline has come."""
        over = [opaque for opaque, one in self._waiting.items() if one.deadline <= now]
        return [self._waiting.pop(opaque) for opaque in over]

    def take_all(self) -> list[WaitingRequest]:
        """Take every request, oldest first."""
        all_waiting = list(self._waiting.values())
        self._waiting.clear()
        return all_waiting
