"""Notices refusals that last: a short one is normal, a lasting one is an alarm."""

from __future__ import annotations

import logging

import trio

logger = logging.getLogger(__name__)

# A host that lost its power and is back may be refused for as long as its old connections count as
# open: keep-alives end them after 15 s (`dledger.sockets`).
LASTING_S = 18.0
# A refused caller tries again every second.
OVER_S = 10.0
# A group has 18 members at most.
MAX_NAMES = 64


class LastingRefusals:
    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        self._told: set[str] = set()

    def add(self, name: str, line: str, event: str) -> None:
        """Note one more refusal of `name`; log `line` once if the refusals last."""
        now = trio.current_time()
        since, last = self._since.get(name, (now, now))
        if now - last > OVER_S:
            since = now
            self._told.discard(name)
        if name in self._since or len(self._since) < MAX_NAMES:
            self._since[name] = (since, now)
        if now - since >= LASTING_S and name not in self._told:
            self._told.add(name)
            logger.error("%s", line, extra={"event": event, "peer": name})

    @property
    def names(self) -> list[str]:
        """The names that have been refused for long, and still are."""
        now = trio.current_time()
        return [
            name
            for name, (since, last) in self._since.items()
            if last - since >= LASTING_S and now - last <= OVER_S
        ]
