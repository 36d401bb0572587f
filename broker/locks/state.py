"""Locks of ordered consumers: one client a queue and group, for 60 seconds unless it asks again.

Part of the folded state, so that a new leader knows each holder: with locks in the leader's
memory, as in RocketMQ's RebalanceLockManager, two consumers could hold one queue after a change of
leader. Time is that of `dledger.sessions.session_clock`: it runs while the group has a
leader, and stands still while it has none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart

# RocketMQ's; clients ask again every 20 s, and take a lock of their own for lost after 30 s.
LOCK_MS: Final = 60_000

# A group, a topic, and the id of a queue.
LockKey: TypeAlias = tuple[str, str, int]


class LockOwner(NamedTuple):
    """The holder of a queue, and since when: the time of the log, in milliseconds."""

    client_id: str
    locked_ms: int


@dataclass(slots=True)
class QueueLocks:
    """The holder of each locked queue. Only the fold changes it.

    Attributes:
        owners: by queue.
        time_ms: the time of the newest change; it never goes back.
        swept_ms: when locks that had expired were last removed.
    """

    owners: Belongings[LockKey, LockOwner] = field(default_factory=Belongings)
    time_ms: int = 0
    swept_ms: int = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]], time_ms: int
    ) -> None:
        """Lock what is free, expired, or the client's own."""
        self._advance(time_ms)
        for topic, queue_id in queues:
            key = (group, topic, queue_id)
            owner = self.owners.get(key)
            if owner is None or owner.client_id == client_id or self._has_expired(owner):
                self.owners[key] = LockOwner(client_id, self.time_ms)

    def unlock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]], time_ms: int
    ) -> None:
        """Give up what the client itself has locked."""
        self._advance(time_ms)
        for topic, queue_id in queues:
            if self.is_owner(group, client_id, topic, queue_id):
                del self.owners[group, topic, queue_id]

    def is_owner(self, group: str, client_id: str, topic: str, queue_id: int) -> bool:
        """Whether the client was the last one to lock the queue."""
        owner = self.owners.get((group, topic, queue_id))
        return owner is not None and owner.client_id == client_id

    def holds_any(self, group: str) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        return any(not self._has_expired(self.owners[key]) for key in self.owners.of_group(group))

    def _has_expired(self, owner: LockOwner) -> bool:
        return self.time_ms - owner.locked_ms > LOCK_MS

    def _advance(self, time_ms: int) -> None:
        """Go on in time; once in 60 seconds, remove what has expired."""
        self.time_ms = max(self.time_ms, time_ms)
        if self.time_ms - self.swept_ms > LOCK_MS:
            self.swept_ms = self.time_ms
            for key in [key for key, owner in self.owners.items() if self._has_expired(owner)]:
                del self.owners[key]


def _topic_deleted(locks: QueueLocks, deletion: Deletion) -> None:
    if deletion.with_locks:
        locks.owners.drop_topic(deletion.name)


def _group_deleted(locks: QueueLocks, deletion: Deletion) -> None:
    if deletion.with_locks:
        locks.owners.drop_group(deletion.name)


def _captured_clock(locks: QueueLocks) -> Iterator[object]:
    return iter([locks.time_ms, locks.swept_ms])


def _take_clock(locks: QueueLocks, rows: list[Any]) -> None:
    locks.time_ms, locks.swept_ms = map(int, rows)


def _captured(locks: QueueLocks) -> Iterator[object]:
    owners = list(locks.owners.items())
    return ([*key, *owner] for key, owner in owners)


def _take(locks: QueueLocks, rows: list[Any]) -> None:
    for group, topic, queue_id, client_id, locked_ms in rows:
        locks.owners[group, topic, queue_id] = LockOwner(client_id, locked_ms)


LOCKS: Final = StatePart(
    "locks",
    QueueLocks,
    rows=(Rows("lock clock", _captured_clock, _take_clock), Rows("locks", _captured, _take)),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
