"""Searches for messages by a key that wait for the index, and their answers."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.query.keys import keys_of
from broker.serving.origin import Origin
from broker.store.key_index import KeyIndex
from broker.store.message_reader import MessageReader, Outline
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Waiting searches. Each takes about a millisecond once the index has caught up.
MAX_WAITING: Final = 64

# Those of one user, so that the others' have room.
MAX_WAITING_OF_USER: Final = 16

# How long a search waits for the index; Java's wait for 15 s.
WAIT_S: Final = 5.0

# Of one answer, except for a single longer message; a frame holds 16 MiB.
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024

# Entries of the index that one search reads. Only a key of very many messages has more entries of
# which none of the newest is in the time range.
MAX_LOOKED_AT: Final = 200_000

# Entries, and messages among them, that are read between two pauses: less than a millisecond.
_AT_ONCE: Final = 256
_MESSAGES_AT_ONCE: Final = 16


class Search(NamedTuple):
    """One search.

    Attributes:
        key: a unique key, or one of the KEYS.
        begin_ms, end_ms: when the messages were stored, at the earliest and at the latest.
        max_messages: how many are wanted; the newest ones.
        position: it waits until everything before this log position is indexed.
        deadline: until when it waits for that, on the monotonic clock.
        is_permitted: asked before messages are sent, as rules may have changed meanwhile.
        user: for whom it counts; None for super users, and without access control.
    """

    origin: Origin
    command: Command
    topic: str
    key: str
    begin_ms: int
    end_ms: int
    max_messages: int
    position: int
    deadline: float
    is_permitted: Callable[[], bool] = lambda: True
    user: str | None = None


class Searches:
    """The searches of one member, answered in the order in which they arrived.

    Attributes:
        waiting: those that are not answered.
        on_added: called for each new one.
    """

    def __init__(self, state: BrokerState, index: KeyIndex, reader: MessageReader) -> None:
        self._messages = state[MESSAGES]
        self._index = index
        self._reader = reader
        self.waiting: deque[Search] = deque()
        self.on_added: Callable[[], None] = lambda: None

    def add(self, search: Search) -> None:
        """Add a search. Raises RequestRefused (2): too many wait, or too many of its user."""
        if len(self.waiting) >= MAX_WAITING:
            raise RequestRefused.busy(f"{MAX_WAITING} searches wait: search again later")
        user = search.user
        if user is not None and (
            sum(one.user == user for one in self.waiting) >= MAX_WAITING_OF_USER
        ):
            words = f"user {user} has {MAX_WAITING_OF_USER} searches that wait: search again later"
            raise RequestRefused.busy(words)
        self.waiting.append(search)
        self.on_added()

    def end_term(self, refusal: RequestRefused) -> None:
        """Refuse all searches: another member leads."""
        waiting, self.waiting = self.waiting, deque()
        for search in waiting:
            search.origin.send(refusal.reply_to(search.command))

    def drop(self, origin: Origin) -> None:
        self.waiting = deque(one for one in self.waiting if one.origin is not origin)

    def answering(self, search: Search) -> Iterator[None]:
        """Answer a search, a millisecond at a time. Raises DiskFailed."""
        if self._index.covered < search.position:
            behind = search.position - self._index.covered
            self._refuse(
                search,
                f"the key index is being made and {behind} bytes of the log behind: ask again",
            )
            return
        found: dict[int, None] = {}
        read = 0
        hints = self._index.find(search.topic, search.key, search.begin_ms, search.end_ms)
        for looked_at, hint in enumerate(itertools.islice(hints, MAX_LOOKED_AT), 1):
            if hint is not None:
                read += 1
                if self._wanted(search, hint.position) is not None:
                    found[hint.position] = None
                    if len(found) == search.max_messages:
                        break
            if looked_at % _AT_ONCE == 0 or read == _MESSAGES_AT_ONCE:
                read = 0
                yield
        if search.origin.is_closed:
            return
        if found:
            search.origin.when_taken(lambda: self._send(search, list(found)))
        else:
            search.origin.send(
                search.command.reply(
                    ResponseCode.QUERY_NOT_FOUND,
                    remark="can not find message, maybe time range not correct",
                )
            )

    def failed(self, search: Search) -> None:
        self._refuse(search, "the key index cannot be read: see the broker's log")

    def _refuse(self, search: Search, remark: str) -> None:
        search.origin.send(search.command.reply(ResponseCode.SYSTEM_BUSY, remark=remark))

    def _send(self, search: Search, positions: list[int]) -> None:
        if not search.is_permitted():
            refusal = RequestRefused.forbidden("not permitted any more: rules have changed")
            search.origin.send(refusal.reply_to(search.command))
            return
        records: list[bytes] = []
        size = 0
        for position in positions:
            wanted = self._wanted(search, position)  # retention may have dropped it since
            if wanted is None or (records and size + wanted.size > MAX_ANSWER_BYTES):
                continue
            record = self._reader.record_at(position)
            if record is not None:
                records.append(record)
                size += len(record)
        fields = {
            "indexLastUpdatePhyoffset": str(self._index.covered),
            "indexLastUpdateTimestamp": str(self._messages.store_timestamp_ms),
        }
        search.origin.send(search.command.reply(fields=fields, body=b"".join(records)))

    def _wanted(self, search: Search, position: int) -> Outline | None:
        """Return the message at a position, if the search wants it.

        Another key may have the same hash, and the topic may be gone.
        """
        outline = self._reader.outline_at(position)
        if (
            outline is None
            or outline.facts.topic != search.topic
            or not search.begin_ms <= outline.facts.store_timestamp_ms <= search.end_ms
            or search.key not in keys_of(outline.record)
        ):
            return None
        return outline
