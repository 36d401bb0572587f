"""Locks of ordered consumers: one client a queue and group, for 60 seconds unless it asks again.

Part of the folded state, so that a new leader knows each holder: with locks in the leader's
memory, as in RocketMQ's RebalanceLockManager, two consumers could hold one queue after a change of
leader. Time is that of `dledger.sessions.session_clock`: it runs while the group has a
leader, and stands still while it has none.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart

# RocketMQ's; clients ask again every 20 s, and take a lock of their own for lost after 30 s.
LOCK_MS: Final = 60_000

# Locks that are let go of with each change: more than most add, in some milliseconds.
_SWEPT_LOCKS: Final = 512

# A group, a topic, and the id of a queue.
LockKey: TypeAlias = tuple[str, str, int]


class LockOwner(NamedTuple):
    """The holder of a queue, and since when: the time of the log, in milliseconds."""

    client_id: str
    locked_ms: int


@dataclass(slots=True, eq=False)
class QueueLocks:
    """The holder of each locked queue. Only the fold changes it.

    What had expired at `swept_ms` is not there any more. It is let go of later, some locks with
    each change: a hundred thousand may expire at once.

    Attributes:
        time_ms: the time of the newest change; it never goes back.
        swept_ms: when locks that had expired were last removed.
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
        """The holders by queue."""
        return {key: owner for key, owner in self._held.items() if not self._is_swept(owner)}

    def owner(self, group: str, topic: str, queue_id: int) -> LockOwner | None:
        """The client that was the last one to lock a queue."""
        owner = self._held.get((group, topic, queue_id))
        return None if owner is None or self._is_swept(owner) else owner

    def room(self, most: int) -> int:
        """How many queues may be locked besides, if there may be so many locks."""
        self._sweep()
        return self._held.room(most)

    def lock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]], time_ms: int
    ) -> None:
        """Lock what is free, expired, or the client's own."""
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
        """Give up what the client itself has locked."""
        self._advance(time_ms)
        for topic, queue_id in queues:
            if self.is_owner(group, client_id, topic, queue_id):
                del self._held[group, topic, queue_id]
                self._oldest_first.pop((group, topic, queue_id), None)

    def put(self, key: LockKey, owner: LockOwner) -> None:
        """A queue has this holder now."""
        self._held[key] = owner
        self._oldest_first[key] = None
        self._oldest_first.move_to_end(key)

    def drop_topic(self, topic: str) -> None:
        """Free the queues of a topic that was deleted."""
        self._held.drop_topic(topic)

    def drop_group(self, group: str) -> None:
        """Free the queues of a group that was deleted."""
        self._held.drop_group(group)

    def is_owner(self, group: str, client_id: str, topic: str, queue_id: int) -> bool:
        """Whether the client was the last one to lock the queue."""
        owner = self.owner(group, topic, queue_id)
        return owner is not None and owner.client_id == client_id

    def holds_any(self, group: str) -> bool:
        """Whether a client of the group holds a queue: the group consumes in order."""
        return any(
            not self._has_expired(self._held[key]) for key in self._held.each_of_group(group)
        )

    def captured(self) -> Iterator[tuple[LockKey, LockOwner]]:
        """All holders as they are now, whatever is changed while they are taken."""
        swept_ms, rows = self.swept_ms, self._held.captured()
        return ((key, owner) for key, owner in rows if swept_ms - owner.locked_ms <= LOCK_MS)

    def _has_expired(self, owner: LockOwner) -> bool:
        return self.time_ms - owner.locked_ms > LOCK_MS

    def _advance(self, time_ms: int) -> None:
        """Go on in time; once in 60 seconds, remove what has expired."""
        self.time_ms = max(self.time_ms, time_ms)
        if self.time_ms - self.swept_ms > LOCK_MS:
            self.swept_ms = self.time_ms
        self._sweep()

    def _is_swept(self, owner: LockOwner) -> bool:
        return self.swept_ms - owner.locked_ms > LOCK_MS

    def _sweep(self) -> None:
        """Let go of some of what is not there any more."""
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
