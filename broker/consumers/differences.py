"""Logs the groups whose members have different subscriptions."""

import logging
from collections.abc import Iterator
from typing import Final

from broker.consumers.kinds import words_of
from broker.consumers.members import Consumers, GroupMembers
from remoting.bodies.pieces import pieces
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# A group is logged once for each change, and no more often than this.
TELL_S: Final = 60.0

# Groups that one look logs; others wait for the next ones.
MAX_TOLD: Final = 20

# Of one group: the kinds that are logged, and the characters of all.
_KINDS: Final = 3
_CHARACTERS: Final = 1200


class Differences:
    """Looks every ten seconds, so that members replaced in the meantime are not logged."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        # By group: the last change of its kinds that was logged, and when, in seconds.
        self._told: dict[str, tuple[int, float]] = {}

    def look(self, now: float) -> Iterator[None]:
        """Log the groups that have changed, in steps; `now` is in seconds on the
        monotonic clock.
        """
        differing = self._consumers.differing
        for told in pieces(self._told):
            for name in told:
                if name not in differing:
                    self._told.pop(name, None)
            yield
        left = MAX_TOLD
        for names in pieces(sorted(differing)):
            for name in names:
                group = self._consumers.group(name)
                if group is None:
                    continue
                if not left:
                    return
                changes, told_at = self._told.get(name, (-1, now - TELL_S))
                if group.kinds.changes != changes and now >= told_at + TELL_S:
                    self._told[name] = group.kinds.changes, now
                    left -= 1
                    yield from _tell(name, group)
            yield

    def clear(self) -> None:
        self._told.clear()


def _tell(name: str, group: GroupMembers) -> Iterator[None]:
    examples = yield from group.clients_by_kind_in_steps(_KINDS, 1)
    words = [
        f"{quoted(clients[0])} and {group.kinds.counts[kind] - 1} more: {quoted(words_of(kind))}"
        for kind, clients in examples.items()
        if clients and kind in group.kinds.counts  # its members may have left meanwhile
    ]
    more = len(group.kinds.counts) - len(words)
    _log.warning(
        "members of group %s subscribe to different things, so that messages are missed: %s; "
        "give all members the same subscriptions",
        quoted(name),
        quoted("; ".join(words) + (f"; and {more} other ways" if more else ""), _CHARACTERS),
    )
