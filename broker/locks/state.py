"""Locks of ordered consumers: one client per queue and group, for 60 seconds unless renewed.

They are folded state, so that a new leader knows each owner. RocketMQ's RebalanceLockManager keeps
locks in the leader's memory, so two consumers may hold one queue after a change of leader. Time is
that of `dledger.sessions.session_clock`: it stands still while the group has no leader.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart

# RocketMQ's value. Clients renew locks every 20 s, and count a lock as lost after 30 s.
LOCK_MS: Final = 60_000

# Locks that are removed with each change: more than most add, in some milliseconds.
_SWEPT_LOCKS: Final = 512

# A group, a topic, and the id of a queue.
LockKey: TypeAlias = tuple[str, str, int]


class LockOwner(NamedTuple):
    """The owner of a queue, and since when: the time of the log, in milliseconds."""

    client_id: str
    locked_ms: int


@dataclass(slots=True, eq=False)
class QueueLocks:
    """The owner of each locked queue. Only the fold changes it.

    Locks that had expired at `swept_ms` cannot be found any more. They are removed later, some with
    each change: a hundred thousand may expire at once.

    Attributes:
        time_ms: the time of the newest change; it never goes back.
        swept_ms: the time up to which expired locks are gone.
    """

    time_ms: int = 0
    swept_ms: int = 0
    _held: Belongings[LockKey, LockOwner] = field(default_factory=Belongings)
    _oldest_first: OrderedDict[LockKey, None] = field(default_factory=OrderedDict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueLocks) and (
            (self.time_ms, self.swept_ms, self.owners)
            == (other.time_ms, other.swept_ms, other.owners)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def owners(self) -> dict[LockKey, LockOwner]:
        return {key: owner for key, owner in self._held.items() if not self._is_swept(owner)}

    def owner(self, group: str, topic: str, queue_id: int) -> LockOwner | None:
        owner = self._held.get((group, topic, queue_id))
        return None if owner is None or self._is_swept(owner) else owner

    def room(self, most: int) -> int:
        """Return how many more queues may be locked if `most` locks are allowed."""
        self._sweep()
        return self._held.room(most)

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]], time_ms: int
    ) -> None:
        """Lock queues that are free, expired, or the client's own."""
        self._advance(time_ms)
        new = LockOwner(client_id, self.time_ms)
        for topic, queue_id in queues:
            key = (group, topic, queue_id)
            owner = self._held.get(key)
            if owner is None or owner.client_id == client_id or self._has_expired(owner):
                self.put(key, new)

    def unlock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]], time_ms: int
    ) -> None:
        self._advance(time_ms)
        for topic, queue_id in queues:
            if self.is_owner(group, client_id, topic, queue_id):
                del self._held[group, topic, queue_id]
                self._oldest_first.pop((group, topic, queue_id), None)

    def put(self, key: LockKey, owner: LockOwner) -> None:
        self._held[key] = owner
        self._oldest_first[key] = None
        self._oldest_first.move_to_end(key)

    def drop_topic(self, topic: str) -> None:
        self._held.drop_topic(topic)

    def drop_group(self, group: str) -> None:
        self._held.drop_group(group)

    def is_owner(self, group: str, client_id: str, topic: str, queue_id: int) -> bool:
        owner = self.owner(group, topic, queue_id)
        return owner is not None and owner.client_id == client_id

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Return whether a client of the group holds a queue now: the group consumes in order."""
        held = self._held
        return any(now_ms - held[key].locked_ms <= LOCK_MS for key in held.each_of_group(group))

    def captured(self) -> Iterator[tuple[LockKey, LockOwner]]:
        """Return all owners as of the call, whatever changes while they are taken."""
        swept_ms, rows = self.swept_ms, self._held.captured()
        return ((key, owner) for key, owner in rows if swept_ms - owner.locked_ms <= LOCK_MS)

    def _has_expired(self, owner: LockOwner) -> bool:
        return self.time_ms - owner.locked_ms > LOCK_MS

    def _advance(self, time_ms: int) -> None:
        """Advance the time; once in 60 seconds, let expired locks go."""
        self.time_ms = max(self.time_ms, time_ms)
        if self.time_ms - self.swept_ms > LOCK_MS:
            self.swept_ms = self.time_ms
        self._sweep()

    def _is_swept(self, owner: LockOwner) -> bool:
        return self.swept_ms - owner.locked_ms > LOCK_MS

    def _sweep(self) -> None:
        """Remove some dead locks."""
        for _ in range(min(_SWEPT_LOCKS, len(self._oldest_first))):
            key = next(iter(self._oldest_first))
            owner = self._held.get(key)
            if owner is not None:
                if not self._is_swept(owner):
                    return
                del self._held[key]
            del self._oldest_first[key]


def _topic_deleted(locks: QueueLocks, deletion: Deletion) -> None:
    if deletion.with_locks:
        locks.drop_topic(deletion.name)


def _group_deleted(locks: QueueLocks, deletion: Deletion) -> None:
    if deletion.with_locks:
        locks.drop_group(deletion.name)


def _captured_clock(locks: QueueLocks) -> Iterator[object]:
    return iter([locks.time_ms, locks.swept_ms])


def _take_clock(locks: QueueLocks, rows: list[Any]) -> None:
    locks.time_ms, locks.swept_ms = map(int, rows)


def _captured(locks: QueueLocks) -> Iterator[object]:
    return ([*key, *owner] for key, owner in locks.captured())


def _take(locks: QueueLocks, rows: list[Any]) -> None:
    for group, topic, queue_id, client_id, locked_ms in rows:
        locks.put((group, topic, queue_id), LockOwner(client_id, locked_ms))


LOCKS: Final = StatePart(
    "locks",
    QueueLocks,
    rows=(Rows("lock clock", _captured_clock, _take_clock), Rows("locks", _captured, _take)),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
