"""Resets the offsets of consumer groups (222).

As in RocketMQ 5, the broker stores the new offsets, and tells a consumer at its next pull. So it
works for every client, and for groups without members. RocketMQ 4 asks the members to do it.
Source: RocketMQ's AdminBrokerProcessor.
"""

from typing import Final

from broker.errors import RequestRefused
from broker.groups.state import GROUPS
from broker.log.submissions import submit_commands
from broker.offsets.room import OFFSET_ROOM
from broker.offsets.state import OFFSETS
from broker.resets.commands import ResetOffsets
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.store.message_reader import MESSAGE_READER
from broker.topics.state import TOPICS
from remoting.bodies.message_queue import MessageQueue, encode_queue_keyed
from remoting.net.answering import Steps
from remoting.wire.command import Command

# Each takes up to 30 reads of the log, 10 us each.
_QUEUES_A_STEP: Final = 4


class ResetProcessor:
    """Resets groups by time, to an offset, or to the end."""

    def __init__(self, parts: Parts) -> None:
        self._state = parts.state
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._offsets = parts.state[OFFSETS]
        self._log = parts.log
        self._reader = parts[MESSAGE_READER]
        self._room = parts[OFFSET_ROOM]
        self._broker_name = parts.config.group
        self._wall_clock_ms = parts.wall_clock_ms

    def reset(self, origin: Origin, command: Command) -> Steps:
        """Reset a group in a topic: all queues, or one.

        A negative time is the end. Without `isForce` a queue only moves back.

        Raises RequestRefused: (1) an offset outside the queue, (2) too many groups have offsets,
        (17) no such topic, (26) no such group, (29) no such queue.
        """
        group, topic = command.name("group"), command.name("topic")
        time_ms, is_forced = command.integer("timestamp"), command.boolean("isForce")
        queue_id, offset = command.int32("queueId", -1), command.integer("offset", -1)
        config = self._topics.found(topic)
        if group not in self._groups.configs and (group, topic) not in self._offsets.tables:
            raise RequestRefused.no_group(f"there is no consumer group {group:.120}")
        self._room.take(origin, command, [(group, topic)])
        if queue_id >= config.read_queue_count:
            raise RequestRefused.invalid(
                f"topic {topic} has no queue {queue_id}: refresh its route"
            )
        queue_ids = range(config.read_queue_count) if queue_id < 0 else [queue_id]
        wanted: dict[int, int] = {}
        for one in queue_ids:
            if queue_id >= 0 and offset >= 0:
                wanted[one] = self._checked(topic, one, offset)
                continue
            target = (
                self._reader.end(topic, one)
                if time_ms < 0
                else self._reader.offset_at(topic, one, time_ms)
            )
            committed = self._offsets.committed(group, topic, one)
            if not is_forced and committed is not None:
                target = min(target, committed)
            wanted[one] = target
            if one % _QUEUES_A_STEP == 0:
                yield

        def told() -> Command:
            pairs: list[tuple[MessageQueue, object]] = [
                (MessageQueue(topic, self._broker_name, one), target)
                for one, target in wanted.items()
            ]
            return command.reply(body=encode_queue_keyed("offsetTable", pairs))

        reset = ResetOffsets(group, topic, wanted, self._wall_clock_ms(), self._state.log_end)
        submit_commands(self._log, [reset], replying(origin, command, told))
        return None

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        begin, end = self._reader.begin(topic, queue_id), self._reader.end(topic, queue_id)
        if not begin <= offset <= end:
            raise RequestRefused.failed(
                f"offset {offset} of {topic}/{queue_id}: give {begin} to {end}"
            )
        return offset
