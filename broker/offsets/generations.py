"""Which commits are of an earlier life of what they belong to, and do not count.

A commit that lies before the first offset of its topic is of a topic that was deleted.

A reset begins a new generation of a group's offsets in a queue. No client of RocketMQ says to which
generation its commits belong, so it is told by what the broker has answered to its connection:

- A connection that pulls, and was not sent to the new offset yet, is sent there (21), even if it
  asks for just that offset: it may be at work with messages from before.
- When it pulls there, or where an answer to 14 has sent it since, it has joined the generation.
- From then on its commits count that lie within what it was given since: not before the first
  offset that it has pulled, and not behind the last one that it was sent on to.

Any other commit is of an earlier generation and is passed over, with the answer that it was taken,
as RocketMQ does until the first pull. That holds until RESET_MS after the group began to read at
its new place. What is known of connections goes with the leader; a member that the next leader does
not know is sent back to the offset that the group has committed, and joins by that.
"""

from dataclasses import dataclass
from typing import Any, Final

from broker.messages.state import MESSAGES
from broker.offsets.begun_resets import RESET_MS, QueueKey
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared


@dataclass(slots=True)
class _Joined:
    """What a connection was given of a queue since it joined: from `first` up to `last`."""

    first: int
    last: int


class Generations:
    """Judges commits and pulls of groups that were moved, on the leader."""

    def __init__(self, parts: Parts) -> None:
        self._offsets = parts.state[OFFSETS]
        self._messages = parts.state[MESSAGES]
        self._wall_clock_ms = parts.wall_clock_ms
        self._joined: dict[Origin, dict[QueueKey, _Joined]] = {}
        # Where connections were sent that have not joined yet.
        self._sent: dict[Origin, dict[QueueKey, int]] = {}

    def is_open(self, key: QueueKey) -> bool:
        """Whether the group was moved in a queue, so lately that older commits may come."""
        if self._offsets.reset(*key) is not None:
            return True
        began_ms = self._offsets.began.began_ms(key)
        return began_ms is not None and self._wall_clock_ms() - began_ms < RESET_MS

    def has_joined(self, origin: Origin, key: QueueKey) -> bool:
        """Whether a connection reads where the group was moved."""
        return key in self._joined.get(origin, ())

    def send(self, origin: Origin, key: QueueKey, offset: int) -> None:
        """A connection is told where its group goes on in a queue."""
        if self.is_open(key) and not self.has_joined(origin, key):
            self._sent.setdefault(origin, {})[key] = offset

    def pulls(self, origin: Origin, key: QueueKey, offset: int) -> bool:
        """A connection pulls from an offset; whether it has joined."""
        joined = self._joined.get(origin, {}).get(key)
        if joined is not None:
            joined.first = min(joined.first, offset)
            return True
        if self._sent.get(origin, {}).get(key) != offset:
            return False
        del self._sent[origin][key]
        self._joined.setdefault(origin, {})[key] = _Joined(offset, offset)
        return True

    def gives(self, origin: Origin, key: QueueKey, next_offset: int) -> None:
        """A connection is given what lies before an offset."""
        joined = self._joined.get(origin, {}).get(key)
        if joined is not None:
            joined.last = max(joined.last, next_offset)

    def counts(self, origin: Origin, key: QueueKey, offset: int) -> bool:
        """Whether a commit is of the topic that exists, and of the group's generation."""
        if offset < self._messages.begins.get(key[1], 0):
            return False
        if not self.is_open(key):
            return True
        joined = self._joined.get(origin, {}).get(key)
        return joined is not None and joined.first <= offset <= joined.last

    def moved(self) -> None:
        """A group was moved: who had joined an earlier generation has not joined this one."""
        tables: list[dict[QueueKey, Any]] = [*self._joined.values(), *self._sent.values()]
        for table in tables:
            for key in [key for key in table if self._offsets.reset(*key) is not None]:
                del table[key]

    def drop(self, origin: Origin) -> None:
        """A connection is gone."""
        self._joined.pop(origin, None)
        self._sent.pop(origin, None)

    def clear(self) -> None:
        """This member leads no more."""
        self._joined.clear()
        self._sent.clear()


GENERATIONS: Final = Shared("generations of offsets", Generations)
