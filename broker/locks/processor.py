"""Answers ordered consumers that lock queues (41) and unlock them (42).

Source: RocketMQ's RebalanceLockManager.
"""

from collections.abc import Generator
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.locks.clock import LOCK_CLOCK
from broker.locks.commands import LockQueues
from broker.locks.state import LOCKS
from broker.log.submissions import Then, submit_commands
from broker.serving.needs import Action
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.user_shares import USER_SHARES
from broker.topics.names import check_group_name, check_topic_name
from broker.topics.needs import group_need, topic_need
from remoting.bodies.consumer_group import (
    QueueLock,
    decode_queue_lock_in_steps,
    encode_locked_rows,
    locked_row,
)
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps, answer_each
from remoting.wire.command import Command

# Queues that one step handles.
_AT_ONCE: Final = 256

# Queues that one entry locks, so that many queues with the longest names are applied in parts.
_IN_ONE_ENTRY: Final = 1024


class LockProcessor:
    def __init__(self, parts: Parts) -> None:
        self._locks = parts.state[LOCKS]
        self._access = parts[ACCESS_GUARD]
        self._log = parts.log
        self._limits = parts.config.limits
        self._shares = parts[USER_SHARES]
        self._lock_clock = parts[LOCK_CLOCK]

    def lock(self, origin: Origin, command: Command) -> Steps:
        """Lock queues for an ordered consumer. The reply lists its locks, once they are applied.

        Raises RequestRefused (29): a bad name.
        """
        asked = yield from self._read(origin, command)
        locks, most = self._locks, self._limits.max_locks
        free = locks.room(most)
        is_half_full = 2 * free <= most
        user = self._shares.user_of(origin, command)
        wanted: list[tuple[str, int]] = []
        for piece in pieces(asked.queues, _AT_ONCE):
            topics = sorted({queue.topic for queue in piece})
            needs = [topic_need(topic, Action.SUB) for topic in topics]
            self._access.require(origin, command, needs)
            for queue in piece:
                if locks.owner(asked.group, queue.topic, queue.queue_id) is None:
                    free -= 1
                    if free < 0 or not self._shares.may_take(
                        user, "locks", most, is_half_full=is_half_full
                    ):
                        continue
                wanted.append((queue.topic, queue.queue_id))
            yield

        def locked() -> None:
            answer_each(origin, [command], lambda _origin, command: self._owned(command, asked))

        self._change_locks(asked, True, wanted, replying(origin, command, locked))
        return None

    def _owned(self, command: Command, asked: QueueLock) -> Steps:
        rows: list[str] = []
        for piece in pieces(asked.queues, _AT_ONCE):
            rows += [
                locked_row(queue)
                for queue in piece
                if self._locks.is_owner(asked.group, asked.client_id, queue.topic, queue.queue_id)
            ]
            yield
        return command.reply(body=encode_locked_rows(rows))

    def unlock(self, origin: Origin, command: Command) -> Steps:
        """Unlock queues. Raises RequestRefused (29): a bad name."""
        asked = yield from self._read(origin, command)
        queues = [(queue.topic, queue.queue_id) for queue in asked.queues]
        self._change_locks(asked, False, queues, replying(origin, command))
        return None

    def _change_locks(
        self, asked: QueueLock, is_lock: bool, queues: list[tuple[str, int]], then: Then
    ) -> None:
        time_ms = self._lock_clock.now_ms()
        changes = [
            LockQueues(asked.group, asked.client_id, is_lock, time_ms, piece)
            for piece in list(pieces(queues, _IN_ONE_ENTRY)) or [[]]
        ]
        submit_commands(self._log, changes, then)

    def _read(self, origin: Origin, command: Command) -> Generator[None, None, QueueLock]:
        """Read the request and check its names, as they go into the log and the state."""
        asked = yield from decode_queue_lock_in_steps(command.body)
        self._access.require(origin, command, (group_need(asked.group, Action.SUB),))
        check_group_name(asked.group)
        for piece in pieces(asked.queues, _AT_ONCE):
            for queue in piece:
                check_topic_name(queue.topic)
            yield
        return asked
