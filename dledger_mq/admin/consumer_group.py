"""Administration of one consumer group: its progress, its members, and resetting it."""

from collections.abc import Mapping
from typing import Final

from dledger.renamed import renamed_arguments
from dledger_mq.admin.answers import (
    ConsumerConnection,
    DirectResult,
    GroupConnections,
    GroupProgress,
    TimeSpan,
    decode_connections,
    decode_consume_status,
    decode_direct_result,
    decode_offsets,
    decode_progress,
    decode_time_spans,
)
from dledger_mq.admin.leaders import Leaders
from dledger_mq.argument_checks import MOST_INT32, check_kind, check_number, check_queue
from dledger_mq.connection import requests
from dledger_mq.connection.client import Client
from dledger_mq.connection.lifetime import during_block
from dledger_mq.errors import RequestRefused
from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import LARGE, JsonValue

_NAME: Final = "ConsumerGroup"

# RocketMQ's timestamp for the end of a queue.
_END_MS: Final = -1

# A broker waits 10 s for a consumer's answer.
_ASK_S: Final = 12.0

_ONLINE_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE})

# A broker without a member of the group answers 1 (SYSTEM_ERROR) with a remark.
_MEMBER_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR})

# RocketMQ's retryMaxTimes.
DEFAULT_RETRIES: Final = 16

# One broker may have no offsets of a group, or not know the group, while another one does.
_KNOWN_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})


class ConsumerGroup:
    """Administration of one consumer group. Made by `Admin.group`.

    Every call asks the leaders of all groups of brokers, and raises what `Admin.create_topic` does.

    The brokers reset a group: the new offsets are in their log, members learn of them by their next
    pull, and offsets that members commit before that do not count. So a group can be reset while it
    consumes and while it has no member. A broadcasting group keeps its offsets itself, and cannot
    be reset.

    Args:
        client: whose connections and routes to use.
        name: the group's name.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._lifetime = client.lifetime
        self._leaders = Leaders(client)

    @during_block
    async def create(
        self,
        *,
        in_order: bool = False,
        most_retries: int = DEFAULT_RETRIES,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Make the group, or change it.

        A group that was not made this way is made by its first consumer: it consumes without order.

        Args:
            in_order: whether clients of gRPC get each queue's messages one after another.
            most_retries: redeliveries of a message before it is a dead letter.
            attributes: RocketMQ 5's further settings, as ``lite.bind.topic``; others stay.
        """
        check_kind(_NAME, "in_order", in_order, bool, "True or False")
        check_number(_NAME, "most_retries", most_retries, 0, MOST_INT32, whole=True)
        if attributes is not None:
            check_kind(_NAME, "attributes", attributes, Mapping, "a mapping of texts")
            for value in attributes.values():
                check_kind(_NAME, "attributes", value, str, "a mapping of texts")
        command = requests.create_group(
            self.name,
            in_order=in_order,
            most_retries=most_retries,
            attributes=attributes or {},
        )
        await self._leaders.ask_each(command, "make a consumer group")

    @during_block
    async def progress(self, topic: str = "") -> list[GroupProgress]:
        """Return how far the group has consumed each queue of a topic, or of all its topics."""
        command = requests.consume_stats(self.name, topic)
        replies = await self._leaders.ask_each(command, "tell a group's progress")
        rows = [row for reply in replies.values() for row in decode_progress(reply.body)]
        return sorted(rows, key=lambda row: row.queue)

    @during_block
    async def connections(self) -> GroupConnections | None:
        """Return the connected members and their subscriptions; None when there is no member."""
        replies = await self._leaders.ask_each(
            requests.consumer_connections(self.name),
            "tell a group's members",
            accepted=_ONLINE_OR_NOT,
        )
        found = [
            decode_connections(reply.body)
            for reply in replies.values()
            if reply.code == ResponseCode.SUCCESS
        ]
        if not found:
            return None
        consumers: dict[str, ConsumerConnection] = {}
        subscriptions: dict[str, str] = {}
        for one in found:
            consumers |= {member.client_id: member for member in one.consumers}
            subscriptions |= one.subscriptions
        members = tuple(consumers[client_id] for client_id in sorted(consumers))
        different = max((one.different for one in found), key=len)
        return GroupConnections(
            members, found[0].model, found[0].consume_from, subscriptions, different
        )

    @during_block
    async def running_info(self, client_id: str) -> Mapping[str, JsonValue]:
        """Return a member's own report (307): its settings, queues and progress.

        Raises:
            RequestRefused: no broker has this member, or it does not answer.
        """
        command = requests.running_info(self.name, client_id)
        reply = await self._first(command, "ask a consumer")
        return JsonObject.parse("running info", reply.body, size=LARGE).members

    @during_block
    async def consume_directly(self, client_id: str, offset_message_id: str) -> DirectResult:
        """Have a member's listener consume a stored message, to see how it handles it.

        Nothing is committed, and the message stays where it is. RocketMQ's dashboard resends
        messages this way.

        Args:
            client_id: the member.
            offset_message_id: the message's id with its place, see `ReceivedMessage`.

        Raises:
            RequestRefused: there is no such member or message, or the listener took 10 s.
        """
        command = requests.consume_directly(self.name, client_id, offset_message_id)
        reply = await self._first(command, "ask a consumer")
        return decode_direct_result(reply.body)

    @during_block
    async def consume_status(self, topic: str) -> dict[str, dict[MessageQueue, int]]:
        """Ask each member for the next offset of its queues of a topic; return them by client id.

        Members that do not answer are left out.

        Raises:
            RequestRefused: the group has no member.
        """
        command = requests.consume_status(self.name, topic)
        reply = await self._first(command, "ask consumers")
        return decode_consume_status(reply.body)

    @during_block
    async def time_spans(self, topic: str) -> list[TimeSpan]:
        """Return when the messages of each queue were stored, and how long the next one waits."""
        replies = await self._leaders.ask_each(
            requests.time_spans(self.name, topic),
            "tell time spans",
            names=await self._brokers_of(topic),
            topic=topic,
        )
        spans = [span for reply in replies.values() for span in decode_time_spans(reply.body)]
        return sorted(spans, key=lambda span: span.queue)

    @renamed_arguments(timestamp_milliseconds="timestamp_ms")
    @during_block
    async def reset_to_time(
        self, topic: str, timestamp_ms: int, *, only_back: bool = False
    ) -> dict[MessageQueue, int]:
        """Move the group to the first message stored at a time or later, in each queue of a topic.

        Args:
            topic: the topic.
            timestamp_ms: the time, since 1970.
            only_back: do not move the group forward in any queue.

        Returns:
            The next offset to consume, by queue.
        """
        command = requests.reset_offsets(self.name, topic, timestamp_ms, is_forced=not only_back)
        return await self._reset(command, topic)

    @during_block
    async def reset_to_first(self, topic: str) -> dict[MessageQueue, int]:
        """Move the group to the first message that each queue of a topic holds."""
        return await self.reset_to_time(topic, 0)

    @during_block
    async def skip_all(self, topic: str) -> dict[MessageQueue, int]:
        """Move the group behind the last message of each queue of a topic."""
        return await self.reset_to_time(topic, _END_MS)

    @during_block
    async def reset_to_offset(self, queue: MessageQueue, offset: int) -> None:
        """Move the group to an offset of one queue.

        Raises:
            RequestRefused: the queue does not have this offset; the remark tells which it has.
        """
        check_queue(_NAME, queue)
        command = requests.reset_offsets(
            self.name, queue.topic, 0, is_forced=True, queue_id=queue.queue_id, offset=offset
        )
        await self._leaders.ask_each(
            command, "move a group", names={queue.broker_name}, topic=queue.topic
        )

    @during_block
    async def clone_to(self, target: str, topic: str = "") -> None:
        """Set another group's offsets to this group's: in a topic, or in all it has consumed.

        Raises:
            RequestRefused: this group has no offsets there.
        """
        command = requests.clone_offsets(self.name, target, topic)
        replies = await self._leaders.ask_each(command, "clone offsets", accepted=_KNOWN_OR_NOT)
        if all(reply.code != ResponseCode.SUCCESS for reply in replies.values()):
            broker_name, reply = next(iter(replies.items()))
            raise RequestRefused(broker_name, "clone offsets", reply.code, reply.remark)

    async def _reset(self, command: Command, topic: str) -> dict[MessageQueue, int]:
        replies = await self._leaders.ask_each(
            command, "move a group", names=await self._brokers_of(topic), topic=topic
        )
        offsets: dict[MessageQueue, int] = {}
        for reply in replies.values():
            offsets |= decode_offsets(reply.body)
        return dict(sorted(offsets.items()))

    async def _brokers_of(self, topic: str) -> set[str]:
        route = await self._client.routes.refresh(topic)
        return {queue.broker_name for queue in route.read_queues}

    async def _first(self, command: Command, what: str) -> Command:
        """Return the answer of the first broker that could ask a member."""
        replies = await self._leaders.ask_each(
            command, what, accepted=_MEMBER_OR_NOT, attempt_s=_ASK_S
        )
        for reply in replies.values():
            if reply.code == ResponseCode.SUCCESS:
                return reply
        broker_name, reply = list(replies.items())[-1]
        raise RequestRefused(broker_name, what, reply.code, reply.remark)
