"""Logs client ids that several clients of a group have, so that they read the same queues.

Members share the queues of a group by their ids. Two with one id count as one: both read its
queues, and ordered queues are read by two at a time. A client that has reconnected does not count:
its old connection sends no heartbeats any more.
"""

import logging
from collections.abc import Generator, Iterator
from itertools import islice
from math import inf
from typing import Final

from broker.consumers.members import Consumers
from remoting.bodies.heartbeat import MessageModel
from remoting.bodies.pieces import pieces
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Limits of log lines, because clients choose their ids: the pause between two of one group and id,
# lines and checked ids in one look, and connections in a line.
TELL_S: Final = 300.0
_LINES: Final = 5
_NAMED: Final = 3
_LOOKED_AT: Final = 1000


class Namesakes:
    """Looks every ten seconds."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._told_at: dict[tuple[str, str], float] = {}  # in seconds

    def look(self, now: float) -> Iterator[None]:
        """Log ids of several clients, in steps; `now` is in seconds on the monotonic clock."""
        namesakes = self._consumers.namesakes
        for told in pieces(self._told_at):
            for pair in told:
                if pair not in namesakes:
                    self._told_at.pop(pair, None)
            yield
        lines = 0
        for pair in list(islice(namesakes, _LOOKED_AT)):
            if lines < _LINES and now >= self._told_at.get(pair, now - TELL_S) + TELL_S:
                lines += yield from self._tell(*pair, now)
                yield

    def clear(self) -> None:
        self._told_at.clear()

    def _tell(self, group: str, client_id: str, now: float) -> Generator[None, None, bool]:
        """Log an id, if more than one of its connections is in use."""
        found = self._consumers.namesakes.get((group, client_id), {})
        newest_since, in_use = -inf, list[str]()
        for members in pieces(found.items()):
            newest_since = max([newest_since, *[member.since for _origin, member in members]])
            yield
        for members in pieces(found.items()):
            in_use += [
                str(origin.peer)
                for origin, member in members
                if member.last_heartbeat > newest_since or member.since == newest_since
                if member.data.message_model is not MessageModel.BROADCASTING  # reads all queues
            ]
            if len(in_use) >= _NAMED:
                break
            yield
        if len(in_use) < 2:
            return False
        self._told_at[group, client_id] = now
        _log.warning(
            "group %s has several clients with the id '%s' (%s): they read the same queues; "
            "give each client an id of its own",
            quoted(group),
            quoted(client_id),
            quoted(", ".join(in_use[:_NAMED])),
        )
        return True
