"""Answers searches for messages by a key (12).

Source: RocketMQ's QueryMessageProcessor.
"""

from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.query.searches import WAIT_S, Search, Searches
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.user_shares import USER_SHARES
from broker.topics.needs import READS
from remoting.wire.command import Command

# RocketMQ's values: the most messages in an answer, and the number for a unique key.
MAX_MESSAGES: Final = 64
UNIQUE_MESSAGES: Final = 32


class QueryProcessor:
    """Reads the requests, which `searches` answers."""

    def __init__(self, parts: Parts, searches: Searches) -> None:
        self._access = parts[ACCESS_GUARD]
        self._shares = parts[USER_SHARES]
        self._state = parts.state
        self._searches = searches
        self._clock = parts.clock

    def query(self, origin: Origin, command: Command) -> None:
        """Find the newest messages with a key that were stored within a time range.

        Raises FieldMissing, FieldMalformed; RequestRefused: (2) too many searches wait, (29) no
        message is wanted.
        """
        wanted = command.int32("maxNum")
        if command.fields.get("_UNIQUE_KEY_QUERY") == "true":
            wanted = UNIQUE_MESSAGES
        if wanted < 1:
            raise RequestRefused.invalid(f"maxNum {wanted}: ask for 1 to {MAX_MESSAGES} messages")
        self._searches.add(
            Search(
                origin,
                command.without_content(),
                command.name("topic"),
                command.text("key"),
                command.integer("beginTimestamp"),
                command.integer("endTimestamp"),
                min(wanted, MAX_MESSAGES),
                self._state.log_end,
                self._clock() + WAIT_S,
                self._access.later(origin, command, READS(command)),
                self._shares.user_of(origin, command),
            )
        )
