"""Puts the conditions in heartbeats into the log."""

from collections.abc import Iterator
from typing import Final

from broker.errors import RequestRefused
from broker.filters.commands import PutFilter
from broker.filters.condition import condition
from broker.filters.state import FILTERS
from broker.log.submissions import submit_commands
from broker.serving.parts import Parts, Shared
from broker.settings.user_shares import USER_SHARES
from broker.topics.state import TOPICS
from remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from remoting.wire.codes import ResponseCode

SQL92: Final = "SQL92"

# Of all conditions in one heartbeat: they are compiled in some ten milliseconds.
MAX_HEARTBEAT_CHARACTERS: Final = 8 * 1024

_MAX_VERSION: Final = (1 << 63) - 1


class FilterChanges:
    def __init__(self, parts: Parts) -> None:
        self._filters = parts.state[FILTERS]
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._max_filters = parts.config.limits.max_filters
        self._shares = parts[USER_SHARES]
        self._making: set[tuple[str, str, int]] = set()

    def check(self, data: ConsumerData) -> Iterator[None]:
        """Compile the conditions of a heartbeat, one per step: a long one takes some milliseconds.

        Raises RequestRefused (23): one is wrong, or all together are too long.
        """
        wanted = [one for one in data.subscriptions if one.expression_type == SQL92]
        characters = sum(len(one.expression) for one in wanted)
        if characters > MAX_HEARTBEAT_CHARACTERS:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"SQL92 conditions of {characters} characters in one heartbeat: at most "
                f"{MAX_HEARTBEAT_CHARACTERS}",
            )
        for one in wanted:
            condition(one.expression)
            yield

    def registered(self, data: ConsumerData, user: str | None) -> None:
        """Keep the conditions of a consumer of a user, see `UserShares.user_of`."""
        for one in data.subscriptions:
            if one.expression_type == SQL92 and one.topic in self._topics.configs:
                self._keep(data.group, one, user)

    def begin_term(self) -> None:
        """Forget commands of an earlier term, which are applied or lost."""
        self._making.clear()

    def _keep(self, group: str, one: SubscriptionData, user: str | None) -> None:
        tables, most = self._filters.tables, self._max_filters
        old, making = self._filters.found(group, one.topic), (group, one.topic, one.version)
        if making in self._making or (old is not None and old.version >= one.version):
            return
        if not 0 <= one.version <= _MAX_VERSION:
            return  # no clock has this time
        if old is None and not (
            tables.has_room(most)
            and self._shares.may_take(
                user, "conditions", most, is_half_full=not tables.has_room(most // 2)
            )
        ):
            return  # it still counts while this member leads
        self._making.add(making)
        put = PutFilter(group, one.topic, one.expression, one.version, most)
        submit_commands(self._log, [put], lambda _refusal: self._making.discard(making))


FILTER_CHANGES: Final = Shared("filter changes", FilterChanges)
