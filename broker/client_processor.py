"""Answers what clients say about themselves (34, 35, 38, 41, 42, 46); tells groups of changes (40).

Source: RocketMQ's ClientManageProcessor, ConsumerManageProcessor and RebalanceLockManager.
"""

from collections.abc import Callable, Iterable

from broker.consumers import Consumers, Member
from broker.errors import RequestRefused
from broker.limits import MAX_CLIENT_ID_CHARACTERS, BrokerLimits
from broker.log_changes import Then, submit_commands
from broker.log_entry import LockQueues
from broker.notices import Notices
from broker.origin import Log, Origin
from broker.state import BrokerState
from broker.topic_changes import TopicChanges
from broker.topics import check_group_name, check_topic_name
from dledger import SessionClock
from remoting.bodies.consumer_group import (
    QueueLock,
    decode_queue_lock,
    encode_consumer_list,
    encode_locked_queues,
)
from remoting.bodies.heartbeat import ConsumerData, decode_heartbeat
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


class ClientProcessor:
    """Keeps the consumers of each group and the locks of ordered ones.

    Args:
        state: the applied state.
        consumers: the groups' members.
        log: where locks of queues go.
        changes: makes a group that is heard of for the first time, with its retry topic.
        limits: how many members, subscriptions and locks there may be.
        clock: seconds on the monotonic clock.
    """

    def __init__(
        self,
        state: BrokerState,
        consumers: Consumers,
        log: Log,
        changes: TopicChanges,
        limits: BrokerLimits,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._consumers = consumers
        self._notices = Notices(consumers)
        self._log = log
        self._lock_clock = SessionClock()
        self._changes = changes
        self._limits = limits
        self._clock = clock

    def heartbeat(self, origin: Origin, command: Command) -> Command | None:
        """Register a client's consumers. The reply comes when their groups are in the log.

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused: (2) too many consumers, groups or subscriptions, (29) a bad name.
        """
        heartbeat = decode_heartbeat(command.body)
        for data in heartbeat.consumers:
            self._check(origin, data)
        waiting = len(heartbeat.consumers)
        if not waiting:
            return command.reply()  # a producer: nothing of it is needed
        refusals: list[RequestRefused] = []

        def registered(data: ConsumerData, refusal: RequestRefused | None) -> None:
            nonlocal waiting
            waiting -= 1
            if refusal is not None:
                refusals.append(refusal)
            elif not origin.is_closed:
                self._register(origin, command, heartbeat.client_id, data)
            if not waiting:
                origin.send(
                    command.reply(refusals[0].code, remark=refusals[0].remark)
                    if refusals
                    else command.reply()
                )

        for data in heartbeat.consumers:
            try:
                self._changes.ensure_group(
                    data.group,
                    lambda refusal, data=data: registered(data, refusal),  # type: ignore[misc]
                )
            except RequestRefused as error:
                registered(data, error)
        return None

    def unregister(self, origin: Origin, command: Command) -> Command:
        """A client leaves a group. A producer's group needs no record here."""
        group = command.fields.get("consumerGroup", "")
        if group and self._consumers.unregister(origin, group):
            self._notify([group])
        return command.reply()

    def consumer_list(self, _origin: Origin, command: Command) -> Command:
        """The members of a group, each once, by which they share the queues.

        Raises:
            FieldMissing: the group is not named.
            RequestRefused (1): it has no members.
        """
        group = command.text("consumerGroup")
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group:.120}"
            )
        return command.reply(body=encode_consumer_list(client_ids))

    def lock(self, origin: Origin, command: Command) -> None:
        """Lock queues for an ordered consumer; the reply lists those it has, when they are applied.

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a bad name.
        """
        asked, locks = decode_queue_lock(command.body), self._state.locks
        _check_lock(asked)
        free = self._limits.max_locks - len(locks.owners)
        wanted: list[tuple[str, int]] = []
        for queue in asked.queues:
            if (asked.group, queue.topic, queue.queue_id) not in locks.owners:
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
        time_ms = self._lock_clock.now_ms(self._clock(), self._log.term, self._state.locks.time_ms)
        change = LockQueues(asked.group, asked.client_id, is_lock, time_ms, queues)
        submit_commands(self._log, [change], then)

    def check_config(self, _origin: Origin, command: Command) -> Command:
        """A consumer asks whether its expression can be served; it only asks for SQL92.

        Raises:
            RequestRefused (1): it cannot.
        """
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92: subscribe by tags",
        )

    def drop(self, origin: Origin) -> None:
        """A connection is gone."""
        self._notify(self._consumers.drop(origin))

    def expire(self) -> None:
        """Drop members that have been silent for too long."""
        self._notify(self._consumers.expire(self._clock()))

    def end_term(self) -> None:
        """Forget all clients: this member no longer leads, and they turn to the new leader."""
        self._consumers.clear()
        self._notices.clear()

    def tick(self) -> None:
        """Send the notices that are due."""
        self._notices.tick()

    def _check(self, origin: Origin, data: ConsumerData) -> None:
        check_group_name(data.group)
        if len(data.subscriptions) > self._limits.max_subscriptions:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{len(data.subscriptions)} subscriptions of group {data.group}: "
                f"at most {self._limits.max_subscriptions}",
            )
        is_new = not self._consumers.is_member(origin, data.group)
        if is_new and len(self._consumers) >= self._limits.max_clients:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._consumers)} consumers are registered: stop some",
            )

    def _register(
        self, origin: Origin, command: Command, client_id: str, data: ConsumerData
    ) -> None:
        member = Member(client_id, self._clock(), data, command.language, command.version)
        if self._consumers.register(origin, member):
            self._notify([data.group])

    def _notify(self, groups: Iterable[str]) -> None:
        """Have all members of these groups told, so that they rebalance their queues."""
        for group in groups:
            config = self._state.groups.get(group)
            if config is not None and not config.notify_change:
                continue
            self._notices.changed(group)


def _check_lock(asked: QueueLock) -> None:
    """Names go into the log and the state, so they are bounded. Raises RequestRefused (29)."""
    check_group_name(asked.group)
    for queue in asked.queues:
        check_topic_name(queue.topic)
    if len(asked.client_id) > MAX_CLIENT_ID_CHARACTERS:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"client id of {len(asked.client_id)} characters: at most {MAX_CLIENT_ID_CHARACTERS}",
        )
