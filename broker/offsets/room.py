"""The room for offsets of further groups and topics, of which no user may take too much."""

from collections.abc import Iterable
from typing import Final

from broker.errors import RequestRefused
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from remoting.wire.command import Command

# Pairs of group and topic that were counted and may not be in the log yet: a member commits the
# offsets of many queues at once. With more, all start again.
_MAX_REMEMBERED: Final = 10_000


class OffsetRoom:
    def __init__(self, parts: Parts) -> None:
        self._tables = parts.state[OFFSETS].tables
        self._settings = parts[SETTINGS]
        self._shares = parts[USER_SHARES]
        self._counted: set[tuple[str, str]] = set()

    def take(self, origin: Origin, command: Command, pairs: Iterable[tuple[str, str]]) -> None:
        """Check whether a request may commit offsets of these pairs of group and topic.

        Raises RequestRefused (2): there are too many, or its user has added too many.
        """
        new = {pair for pair in pairs if pair not in self._tables}
        if not new:
            return
        most = self._settings.now.limits.max_offset_tables
        if not self._tables.has_room(most - len(new) + 1):
            raise RequestRefused.busy("offsets of too many groups: delete a group first")
        user = self._shares.user_of(origin, command)
        new -= self._counted
        if user is None or not new:
            return
        is_half_full = not self._tables.has_room(most // 2)
        if not self._shares.may_take(
            user, "offset tables", most, is_half_full=is_half_full, count=len(new)
        ):
            raise RequestRefused.busy(
                f"user {user} has added offsets of too many groups within an hour: delete a group"
            )
        if len(self._counted) >= _MAX_REMEMBERED:
            self._counted.clear()
        self._counted |= new


OFFSET_ROOM: Final = Shared("offset room", OffsetRoom)
