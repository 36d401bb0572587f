"""Which topics exist at one place of the log, and since when."""

from __future__ import annotations

from typing import Any

from broker.topics.names import FIRST_TOPICS


class KnownTopics:
    """The topics, as commands make and delete them.

    Args:
        is_whole: whether all earlier entries of the log are known. Otherwise a topic exists until
            it is deleted.

    Attributes:
        lives: how often each was deleted; without those that never were.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._existing = set(FIRST_TOPICS)
        self.lives: dict[str, int] = {}
        self._created_at: dict[str, int] = {}

    def put(self, topic: str, position: int, limit: int | None) -> None:
        """Make a topic, unless there are `limit` already. `position`: of the command's entry."""
        if topic in self._existing:
            return
        if limit is not None:
            if self._is_whole and len(self._existing) >= limit:
                return
            self._created_at[topic] = position
        self._existing.add(topic)

    def delete(self, topic: str) -> bool:
        """Delete a topic. False if it does not exist."""
        existed = self.existed(topic, 1 << 63)
        self._existing.discard(topic)
        self._created_at.pop(topic, None)
        if existed:
            self.lives[topic] = self.life(topic) + 1
        return existed

    def existed(self, topic: str, position: int) -> bool:
        """Whether the topic that exists now existed already at a position of the log."""
        if topic not in self._existing and (self._is_whole or topic in self.lives):
            return False
        return self._created_at.get(topic, -1) < position

    def life(self, topic: str) -> int:
        """How often a topic of this name was deleted."""
        return self.lives.get(topic, 0)

    def as_json(self) -> list[Any]:
        """All of it, for `take`."""
        return [sorted(self._existing), self.lives, self._created_at]

    def take(self, content: list[Any]) -> None:
        """Go on from what `as_json` gave. Raises ValueError, TypeError, AttributeError."""
        existing, lives, created_at = content
        self._existing = set(existing)
        self.lives = {str(topic): int(count) for topic, count in lives.items()}
        self._created_at = {str(topic): int(position) for topic, position in created_at.items()}
