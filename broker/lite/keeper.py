"""Ends lite topics some time after their last message, on the leader.

As retention does, the leader looks at its clock and appends its decision, so all members end the
same. A lite topic whose messages retention has all dropped ends as well: nothing is left of it.
"""

from collections.abc import Iterator
from itertools import islice

from broker.errors import RequestRefused
from broker.lite import rows
from broker.lite.commands import EndLite
from broker.lite.limits import LEAST_LIFE_MS, MAX_ENDED_AT_ONCE, SHARDS_AT_ONCE
from broker.lite.state import LITE
from broker.log.submissions import submit_commands
from broker.messages.state import MESSAGES
from broker.serving.parts import Parts
from broker.topics.attributes import LITE_EXPIRATION
from broker.topics.state import TOPICS
from remoting.wire.field_values import read_int64


class LiteKeeper:
    """Looks every ten seconds."""

    def __init__(self, parts: Parts) -> None:
        self._lite = parts.state[LITE]
        self._topics = parts.state[TOPICS]
        self._messages = parts.state[MESSAGES]
        self._log = parts.log
        self._led_term = parts.led_term
        self._wall_clock_ms = parts.wall_clock_ms
        self._work = parts.work
        self._is_looking = False

    def look_over(self) -> None:
        if self._led_term() is not None and self._lite.topic_count and not self._is_looking:
            self._is_looking = True
            self._work.later("ending lite topics", self._looking())

    def _looking(self) -> Iterator[None]:
        try:
            for parent in list(self._lite.parents):
                yield from self._looking_at(parent)
        finally:
            self._is_looking = False

    def _looking_at(self, parent: str) -> Iterator[None]:
        before_ms, before_position = self._before_ms(parent), self._messages.kept_position
        names: list[str] = []
        of = self._lite.parents.get(parent)
        # What each group has of a lite topic ends with it.
        at_once = 1 if of is None else max(1, MAX_ENDED_AT_ONCE // (1 + len(of.groups) // 16))
        for number, shard in enumerate(() if of is None else of.topics.shards(), 1):
            for name, row in list(islice(shard.items(), at_once)):
                is_old = rows.last_ms(row) < before_ms
                if not is_old and rows.last_position(row) >= before_position:
                    break  # the last messages of the others are later
                names.append(name.decode())
            if len(names) >= at_once or (names and number % SHARDS_AT_ONCE == 0):
                self._end(parent, names, before_ms, before_position)
                names = []
            yield
        if names:
            self._end(parent, names, before_ms, before_position)
            yield

    def _before_ms(self, parent: str) -> int:
        """Return the time before which the last message of a lite topic has to be, that it ends."""
        config = self._topics.configs.get(parent)
        minutes = None if config is None else read_int64(config.attributes.get(LITE_EXPIRATION, ""))
        if minutes is None or minutes <= 0:
            return 0
        return max(0, self._wall_clock_ms() - max(minutes * 60_000, LEAST_LIFE_MS))

    def _end(self, parent: str, names: list[str], before_ms: int, before_position: int) -> None:
        if self._led_term() is None:
            return
        end = EndLite(parent, names, before_ms, before_position, self._wall_clock_ms())
        submit_commands(self._log, [end], _later)


def _later(_refusal: RequestRefused | None) -> None:
    """The next look tries again."""
