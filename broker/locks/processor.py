"""Answers ordered consumers that lock queues (41) and give them up (42).

Source: RocketMQ's RebalanceLockManager.
"""

from collections.abc import Callable

from broker.errors import RequestRefused
from broker.limits import BrokerLimits
from broker.locks.commands import LockQueues
from broker.locks.state import LOCKS
from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.log.submissions import Then, submit_commands
from broker.serving.origin import Origin
from broker.topics.names import check_group_name, check_topic_name
from dledger import SessionClock
from remoting.bodies.consumer_group import QueueLock, decode_queue_lock, encode_locked_queues
from remoting.wire.command import Command


class LockProcessor:
    """Changes the locks of ordered consumers.

    Args:
        state: the applied state.
        log: where locks of queues go.
        limits: how many locks there may be.
        clock: seconds on the monotonic clock.
    """

    def __init__(
        self, state: BrokerState, log: Log, limits: BrokerLimits, clock: Callable[[], float]
    ) -> None:
        self._locks = state[LOCKS]
        self._log = log
        self._limits = limits
        self._clock = clock
        self._lock_clock = SessionClock()

    def lock(self, origin: Origin, command: Command) -> None:
        """Lock queues for an ordered consumer; the reply lists those it has, when they are applied.

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a bad name.
        """
        asked, locks = decode_queue_lock(command.body), self._locks
        _check_lock(asked)
        free = locks.room(self._limits.max_locks)
        wanted: list[tuple[str, int]] = []
        for queue in asked.queues:
            if locks.owner(asked.group, queue.topic, queue.queue_id) is None:
                free -= 1
                if free < 0:
                    continue
            wanted.append((queue.topic, queue.queue_id))

        def then(refusal: RequestRefused | None) -> None:
            if refusal is not None:
                origin.send(command.reply(refusal.code, remark=refusal.remark))
                return
            owned = [
                queue
                for queue in asked.queues
                if locks.is_owner(asked.group, asked.client_id, queue.topic, queue.queue_id)
            ]
            origin.send(command.reply(body=encode_locked_queues(owned)))

        self._change_locks(asked, True, wanted, then)

    def unlock(self, origin: Origin, command: Command) -> None:
        """Give up locks.

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a bad name.
        """
        asked = decode_queue_lock(command.body)
        _check_lock(asked)

        def then(refusal: RequestRefused | None) -> None:
            origin.send(
                command.reply()
                if refusal is None
                else command.reply(refusal.code, remark=refusal.remark)
            )

        queues = [(queue.topic, queue.queue_id) for queue in asked.queues]
        self._change_locks(asked, False, queues, then)

    def _change_locks(
        self, asked: QueueLock, is_lock: bool, queues: list[tuple[str, int]], then: Then
    ) -> None:
        time_ms = self._lock_clock.now_ms(self._clock(), self._log.term, self._locks.time_ms)
        change = LockQueues(asked.group, asked.client_id, is_lock, time_ms, queues)
        submit_commands(self._log, [change], then)


def _check_lock(asked: QueueLock) -> None:
    """Names go into the log and the state, so they are bounded. Raises RequestRefused (29)."""
    check_group_name(asked.group)
    for queue in asked.queues:
        check_topic_name(queue.topic)
