"""Warns when no new messages are given, because too many are not acknowledged."""

import logging
import math

from broker.pop.limits import MAX_IN_FLIGHT, WARN_S
from broker.pop.state import POPS
from broker.serving.parts import Parts

_log = logging.getLogger(__name__)


class Crowding:
    """Watches the number of messages in flight."""

    def __init__(self, parts: Parts) -> None:
        self._pops = parts.state[POPS]
        self._clock = parts.clock
        self._warn_at = -math.inf

    def look(self) -> None:
        if self._pops.in_flight_count < MAX_IN_FLIGHT or self._clock() < self._warn_at:
            return
        self._warn_at = self._clock() + WARN_S
        _log.warning(
            "%d popped messages are not acknowledged, and no more are given out: look for groups "
            "whose consumers do not acknowledge",
            self._pops.in_flight_count,
        )
