"""Ignores commits that belong to a deleted topic, or to offsets before a reset.

A commit that lies before the first offset of its topic is of a topic that was deleted.

A reset begins a new generation of a group's offsets in a queue. RocketMQ's clients do not say to
which generation a commit belongs, so the broker derives it from its answers to the connection:

- A connection that pulls, and was not sent to the new offset yet, is sent there (21), even if it
  asks for just that offset: it may be processing messages from before the reset.
- When it pulls there, or from where an answer to 14 has sent it since, it has joined the
  generation.
- From then on its commits count if they lie within the messages it was given since: from the first
  offset that it has pulled to the last one that it was sent on to.

Any other commit is of an earlier generation. It is ignored and answered with success, as RocketMQ
does until the first pull. That holds until RESET_MS after the group began to read at its new
offset. The next leader does not know the connections: it sends a member back to the offset that the
group has committed, and the member joins there.
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
    """The range of offsets that a connection was given of a queue since it joined."""

    first: int
    last: int


class Generations:
    """Judges commits and pulls of groups after resets, on the leader."""

    def __init__(self, parts: Parts) -> None:
        self._offsets = parts.state[OFFSETS]
        self._messages = parts.state[MESSAGES]
        self._wall_clock_ms = parts.wall_clock_ms
        self._joined: dict[Origin, dict[QueueKey, _Joined]] = {}
        # Offsets to which connections were sent that have not joined yet.
        self._sent: dict[Origin, dict[QueueKey, int]] = {}

    def is_open(self, key: QueueKey) -> bool:
        """Return whether the group was reset in a queue so recently that older commits
        may arrive.
        """
        if self._offsets.reset(*key) is not None:
            return True
        began_ms = self._offsets.began.began_ms(key)
        return began_ms is not None and self._wall_clock_ms() - began_ms < RESET_MS

    def has_joined(self, origin: Origin, key: QueueKey) -> bool:
        """Return whether a connection reads from where the group was reset to."""
        return key in self._joined.get(origin, ())

    def send(self, origin: Origin, key: QueueKey, offset: int) -> None:
        """Note that a connection is told from where its group reads a queue."""
        if self.is_open(key) and not self.has_joined(origin, key):
            self._sent.setdefault(origin, {})[key] = offset

    def pulls(self, origin: Origin, key: QueueKey, offset: int) -> bool:
        """Note that a connection pulls from an offset; return whether it has joined."""
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
        """Note that a connection is given the messages before an offset."""
        joined = self._joined.get(origin, {}).get(key)
        if joined is not None:
            joined.last = max(joined.last, next_offset)

    def counts(self, origin: Origin, key: QueueKey, offset: int) -> bool:
        """Return whether a commit is of the existing topic and of the group's generation."""
        if offset < self._messages.begins.get(key[1], 0):
            return False
        if not self.is_open(key):
            return True
        joined = self._joined.get(origin, {}).get(key)
        return joined is not None and joined.first <= offset <= joined.last

    def moved(self) -> None:
        """Note a reset: connections have to join again."""
        tables: list[dict[QueueKey, Any]] = [*self._joined.values(), *self._sent.values()]
        for table in tables:
            for key in [key for key in table if self._offsets.reset(*key) is not None]:
                del table[key]

    def drop(self, origin: Origin) -> None:
        self._joined.pop(origin, None)
        self._sent.pop(origin, None)

    def clear(self) -> None:
        self._joined.clear()
        self._sent.clear()


GENERATIONS: Final = Shared("generations of offsets", Generations)
