"""Says when nothing new is given out, because too many messages are not acknowledged."""

import logging
import math
from collections.abc import Callable

from broker.log.state import BrokerState
from broker.pop.limits import MAX_FLYING, WARN_SECONDS
from broker.pop.state import POPS

_log = logging.getLogger(__name__)


class Crowding:
    """Looks how many messages are out.

    Args:
        state: the applied state.
        clock: seconds on the monotonic clock.
    """

    def __init__(self, state: BrokerState, clock: Callable[[], float]) -> None:
        self._pops = state[POPS]
        self._clock = clock
        self._warn_at = -math.inf

    def look(self) -> None:
        """Warn when they are too many, now and then."""
        if self._pops.flying < MAX_FLYING or self._clock() < self._warn_at:
            return
        self._warn_at = self._clock() + WARN_SECONDS
        _log.warning(
            "%d popped messages are not acknowledged, and no more are given out: look for groups "
            "whose consumers do not acknowledge",
            self._pops.flying,
        )
