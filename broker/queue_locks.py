"""Locks of ordered consumers: one client a queue and group, for 60 seconds unless it asks again.

In the leader's memory: a new leader knows no locks, and ordered consumers, who ask again every 20
seconds, lock anew. Source: RocketMQ's RebalanceLockManager.
"""

from typing import Final, NamedTuple

from remoting.consumer_group_body import QueueLock
from remoting.message_queue import MessageQueue

LOCK_SECONDS: Final = 60.0


class _Owner(NamedTuple):
    client_id: str
    locked_at: float


class QueueLocks:
    """Who has locked which queue. Times are seconds on the monotonic clock.

    Args:
        limit: how many queues may be locked.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._owners: dict[tuple[str, MessageQueue], _Owner] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def lock(self, asked: QueueLock, now: float) -> list[MessageQueue]:
        """Lock what is free, expired, or the client's own; the queues it has now."""
        owned: list[MessageQueue] = []
        for queue in asked.queues:
            key = (asked.group, queue)
            owner = self._owners.get(key)
            if owner is None:
                if len(self._owners) >= self._limit:
                    self._expire(now)
                if len(self._owners) >= self._limit:
                    continue
            elif owner.client_id != asked.client_id and now - owner.locked_at <= LOCK_SECONDS:
                continue
            self._owners[key] = _Owner(asked.client_id, now)
            owned.append(queue)
        return owned

    def unlock(self, asked: QueueLock) -> None:
        """Give up what the client itself has locked."""
        for queue in asked.queues:
            owner = self._owners.get((asked.group, queue))
            if owner is not None and owner.client_id == asked.client_id:
                del self._owners[asked.group, queue]

    def clear(self) -> None:
        """Forget every lock."""
        self._owners.clear()

    def _expire(self, now: float) -> None:
        for key in [k for k, o in self._owners.items() if now - o.locked_at > LOCK_SECONDS]:
            del self._owners[key]
