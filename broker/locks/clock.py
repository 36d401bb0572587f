"""The time of queue locks on the leader. It goes on whether clients lock queues or not."""

from typing import Final

from broker.locks.state import LOCKS
from broker.serving.parts import Parts, Shared
from dledger import SessionClock


class LockClock:
    def __init__(self, parts: Parts) -> None:
        self._locks = parts.state[LOCKS]
        self._log = parts.log
        self._clock = parts.clock
        self._session_clock = SessionClock()

    def begin_term(self) -> None:
        """Go on from here from the latest time in the log: the locks of clients that are gone
        expire, even if no client has locked a queue since.
        """
        self.now_ms()

    def now_ms(self) -> int:
        return self._session_clock.now_ms(self._clock(), self._log.term, self._locks.time_ms)


LOCK_CLOCK: Final = Shared("lock clock", LockClock)
