"""Says in the log which clients of a group have one id, and so share queues unknowingly.

Members share the queues of a group by their ids. Two with one id count as one: both read its
queues, and queues in order are read twice at a time. A client that has connected again is no such
case: nothing is heard any more from its old connection.
"""

import logging
from itertools import islice
from typing import Final

from broker.consumers.members import Consumers
from remoting.bodies.heartbeat import MessageModel

_log = logging.getLogger(__name__)

# Of one group and id no more often, and in one look no more lines: clients choose their ids.
TELL_SECONDS: Final = 300.0
_LINES: Final = 5
_LOOKED_AT: Final = 1000
_CHARACTERS: Final = 120


class Namesakes:
    """Looks every ten seconds.

    Args:
        consumers: the members of all groups.
    """

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._told_at: dict[tuple[str, str], float] = {}  # in seconds

    def look(self, now: float) -> None:
        """Tell of ids that several clients have; `now` in seconds on the monotonic clock."""
        namesakes = self._consumers.namesakes
        for pair in self._told_at.keys() - namesakes.keys():
            del self._told_at[pair]
        lines = 0
        for pair in islice(namesakes, _LOOKED_AT):
            if lines < _LINES and now >= self._told_at.get(pair, now - TELL_SECONDS) + TELL_SECONDS:
                lines += self._tell(*pair, now)

    def clear(self) -> None:
        """This member leads no more."""
        self._told_at.clear()

    def _tell(self, group: str, client_id: str, now: float) -> bool:
        """Tell of an id, if more than one of its connections is in use."""
        found = self._consumers.namesakes[group, client_id]
        newest_since = max(member.since for member in found.values())
        in_use = [
            str(origin.peer)
            for origin, member in found.items()
            if member.last_heartbeat > newest_since or member.since == newest_since
            if member.data.message_model is not MessageModel.BROADCASTING  # reads all queues
        ]
        if len(in_use) < 2:
            return False
        self._told_at[group, client_id] = now
        _log.warning(
            "group %s has several clients with the id %.*r (%s): they read the same queues; "
            "give each client an id of its own",
            group,
            _CHARACTERS,
            client_id,
            ", ".join(in_use[:3]),
        )
        return True
