"""Administration: topics, brokers, the progress of consumer groups, settings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from dledger_mq.admin.answers import Statistic, decode_group_list, decode_statistic
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.admin.dead_letters import LAST_MS, MAX_IDS, Redriven, Redrives
from dledger_mq.admin.leaders import Leaders
from dledger_mq.argument_checks import INT64, check_callable, check_kind, check_number, kind_of
from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.connection.client_use import ClientUse
from dledger_mq.connection.lifetime import during_block
from dledger_mq.consuming.offsets import BrokerOffsets
from dledger_mq.errors import (
    InvalidArgument,
    InvalidMessage,
    MessagingError,
    RequestRefused,
    RouteNotFound,
)
from dledger_mq.message import check_group, check_topic
from dledger_mq.popping import pop_requests
from dledger_mq.received_message import ReceivedMessage, received
from dledger_mq.tracing.traces import trace_of
from remoting.bodies.assignment import RequestMode, decode_modes
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.route import BrokerData
from remoting.bodies.table import decode_properties_text, decode_table, decode_topic_list
from remoting.bodies.topic_config import PERMISSION_READ_WRITE, TopicConfig
from remoting.bodies.trace import TraceRecord
from remoting.message.record import decode_records
from remoting.message.topic_names import TRACE_TOPIC
from remoting.net.tls_config import Tls
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError
from remoting.wire.signature import Credentials

# RocketMQ 5's types of messages. Its clients send a topic messages of its own type only.
MESSAGE_TYPES: Final = (*("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"),)

# mqadmin's default for a new topic.
DEFAULT_QUEUES: Final = 8

# How long `create_topic` waits until the name servers route a new topic.
ROUTE_TIMEOUT_S: Final = 10.0

# A search waits for an election, and until the broker's key index has caught up with its log.
SEARCH_TIMEOUT_S: Final = 30.0
_SEARCH_ATTEMPT_S: Final = 8.0  # a broker waits for its index for 5

# How many messages a broker returns for a search: at most, and by default.
MAX_FOUND: Final = 64
DEFAULT_FOUND: Final = 32
_FOUND_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND})

# SYSTEM_ERROR: the broker has counted nothing under this name and key.
_COUNTED_OR_NOT: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR})

# Brokers answer from memory.
FIGURES_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker as a name server knows it.

    Attributes:
        cluster: the cluster it belongs to.
        broker_name: its group.
        broker_id: 0 is the group's leader.
        address: "host:port".
        figures: the broker's own figures, by name; empty when it did not answer.
        problem: why it did not answer, or an empty text.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    figures: dict[str, str]
    problem: str


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a queue is filled, and how far a group has consumed it.

    Attributes:
        queue: the queue.
        first_offset: the first queue offset that the broker still holds.
        next_offset: the queue offset of the next message to be stored.
        committed: the next queue offset that the group will consume, or None if it never committed.
    """

    queue: MessageQueue
    first_offset: int
    next_offset: int
    committed: int | None

    @property
    def lag(self) -> int:
        """The number of messages that the group has not consumed."""
        done = self.first_offset if self.committed is None else self.committed
        return max(self.next_offset - done, 0)


class Admin:
    """Administration of brokers, topics and consumer groups.

    Calls raise `RequestRefused` when a broker refuses, and `NameServersUnreachable`, `NoMaster`,
    `RouteNotFound` or a `remoting.wire.errors.RemotingError` when nothing answers in time.

    Args:
        nameservers: "host:port" each, or one text with semicolons between them, for a client of its
            own.
        client: an open client to share instead.
        tls: TLS with all name servers and brokers, for a client of its own.
        credentials: the user that a client of its own is, where brokers have access control.
    """

    def __init__(
        self,
        *,
        nameservers: str | Sequence[str] = (),
        client: Client | None = None,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._use = ClientUse("administrator", "Admin", nameservers, client, "", tls, credentials)
        self._client, self._lifetime = self._use.client, self._use.lifetime
        self._leaders = Leaders(self._client)

    async def __aenter__(self) -> "Admin":
        """Open the administrator; nothing is sent yet.

        Raises:
            OpenedTwice: it was opened before.
            ClientClosed: the shared client is not open.
        """
        await self._use.open()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._use.close(*raised)

    @during_block
    async def brokers(self) -> list[BrokerData]:
        """Return the groups of brokers that the name servers know, sorted by name."""
        return await self._leaders.brokers()

    @during_block
    async def cluster(self) -> list[BrokerStatus]:
        """Return every broker that the name servers know, with its figures."""
        places = [
            (broker, number, broker.addresses[number])
            for broker in await self.brokers()
            for number in sorted(broker.addresses)
        ]
        outcomes = await self._client.request_all(
            [(address, requests.runtime_info()) for _, _, address in places],
            FIGURES_TIMEOUT_S,
        )
        found: list[BrokerStatus] = []
        for (broker, number, address), outcome in zip(places, outcomes, strict=True):
            figures: dict[str, str] = {}
            problem = ""
            if isinstance(outcome, RemotingError):
                problem = str(outcome)
            elif outcome.code != ResponseCode.SUCCESS:
                problem = outcome.remark or f"code {outcome.code}"
            else:
                figures = decode_table(outcome.body)
            found.append(
                BrokerStatus(broker.cluster, broker.broker_name, number, address, figures, problem)
            )
        return found

    @during_block
    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        permission: int = PERMISSION_READ_WRITE,
        cluster: str = "",
        message_type: str | None = None,
    ) -> None:
        """Create a topic on every group of a cluster, or change it, and wait until it is routed.

        Args:
            topic: its name.
            queues: the number of queues on each group.
            permission: the sum of 4 for read and 2 for write.
            cluster: only the groups of this cluster; all groups when empty.
            message_type: one of MESSAGE_TYPES; None leaves the type as it is.

        Raises:
            InvalidMessage: the name is not legal.
            NoMaster: there is no group, or a group had no leader for 10 s.
            NameServersUnreachable: no name server answers.
            RequestRefused: a broker refuses.
        """
        check_topic(topic)
        config = TopicConfig(topic, queues, queues, permission)
        await self._leaders.ask_each(
            requests.create_topic(config, message_type),
            "make a topic",
            cluster=cluster,
            topic=topic,
        )
        failures = 0
        with trio.move_on_after(ROUTE_TIMEOUT_S):
            while True:
                try:
                    if not (await self._client.routes.refresh(topic)).provisional:
                        return
                except MessagingError:  # as the name server is started again, say
                    failures += 1
                await trio.sleep(pause_s(max(failures, 1)))
        raise RouteNotFound(topic, self._client.routes.nameservers)

    @during_block
    async def delete_topic(self, topic: str, *, cluster: str = "") -> None:
        """Delete a topic and its messages on every group of a cluster, and its routes.

        Raises:
            NoMaster, RequestRefused: see `create_topic`.
        """
        await self._leaders.ask_each(
            requests.delete_topic_in_broker(topic), "remove a topic", cluster=cluster, topic=topic
        )
        nameservers = self._client.routes.nameservers
        outcomes = await self._client.request_all(
            [(address, requests.delete_topic_in_nameserver(topic)) for address in nameservers]
        )
        for address, outcome in zip(nameservers, outcomes, strict=True):
            if isinstance(outcome, RemotingError):
                raise outcome
            if outcome.code != ResponseCode.SUCCESS:
                raise RequestRefused(address, "remove a topic", outcome.code, outcome.remark)

    @during_block
    async def topics(self) -> list[str]:
        """Return the sorted names of all topics, system topics included."""
        reply = await self._client.routes.ask_nameserver(requests.topic_list(), "list topics")
        return sorted(decode_topic_list(reply.body))

    @during_block
    async def progress(self, topic: str, group: str | None = None) -> list[QueueProgress]:
        """Return how far each queue of a topic is filled, and how far a group has consumed it.

        Args:
            topic: the topic.
            group: the consumer group; without it `committed` is None.
        """
        route = await self._client.routes.refresh(topic)
        rows: list[QueueProgress] = []
        for queue in route.read_queues:
            first = await call_master(
                self._client, queue, requests.min_offset(queue), "give the first offset"
            )
            last = await call_master(
                self._client, queue, requests.max_offset(queue), "give the last offset"
            )
            committed = (
                None if group is None else await BrokerOffsets(self._client, group).load(queue)
            )
            rows.append(
                QueueProgress(queue, first.integer("offset"), last.integer("offset"), committed)
            )
        return rows

    @during_block
    async def find(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = LAST_MS,
        most: int = DEFAULT_FOUND,
    ) -> list[ReceivedMessage]:
        """Return the messages with a key, the newest first.

        A key is one word of a message's keys, or the message id that its send returned.

        Args:
            topic: the topic.
            key: the key or the id.
            begin_ms: only messages stored at this time or later, in milliseconds since 1970.
            end_ms: only messages stored at this time or before.
            most: the most messages of each group of brokers; 1 to 64.

        Raises:
            RouteNotFound: there is no such topic.
            RequestRefused: a broker refuses, or its key index was behind its log for 30 s.
        """
        route = await self._client.routes.refresh(topic)
        command = requests.messages_by_key(topic, key, begin_ms, end_ms, most)
        found: list[ReceivedMessage] = []
        for queue in {one.broker_name: one for one in route.read_queues}.values():
            reply = await call_master(
                self._client,
                queue,
                command,
                "find messages",
                accepted=_FOUND_OR_NOT,
                timeout_s=SEARCH_TIMEOUT_S,
                attempt_s=_SEARCH_ATTEMPT_S,
            )
            if reply.code == ResponseCode.SUCCESS:
                found += await self._client.side_work.run(_received, reply.body, queue)
        found.sort(key=lambda one: one.store_timestamp, reverse=True)
        return found

    @during_block
    async def redrive(
        self,
        group: str,
        *,
        to_topic: bool = False,
        ids: Sequence[str] = (),
        begin_ms: int = 0,
        end_ms: int = LAST_MS,
        most: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[Redriven], None] = lambda _progress: None,
    ) -> Redriven:
        """Redeliver the dead letters of a consumer group, each of them once.

        It may be repeated, also after an error: dead letters that were redelivered are passed over.

        Args:
            group: the group.
            to_topic: send them to their original topics, where all groups get them; else to the
                retry topic of the group.
            ids: only the messages with one of these ids, 1000 at most; all when empty.
            begin_ms: only messages that became dead letters at this time or later, in milliseconds
                since 1970.
            end_ms: only messages that became dead letters at this time or before.
            most: stop after this many, the oldest first.
            dry_run: only count.
            on_progress: called after each batch.

        Raises:
            InvalidMessage: more than 1000 ids.
            NoDeadLetters: the group never had a dead letter, or there is no such group.
            RequestRefused: a broker refuses, or does not know this request (3), as RocketMQ's.
            NoMaster: see `create_topic`.
        """
        check_kind("Admin", "group", group, str, "the group's name")
        if isinstance(ids, str) or not isinstance(ids, Collection):
            raise InvalidArgument("Admin", "ids", kind_of(ids), "a list of message ids")
        if most is not None:
            check_number("Admin", "most", most, 0, INT64[1], whole=True)
        check_callable("Admin", "on_progress", on_progress, "a function of the progress")
        if len(ids) > MAX_IDS:
            raise InvalidMessage(group, f"{len(ids)} message ids: at most {MAX_IDS} at once")
        request = partial(
            requests.redrive,
            group,
            to_topic=to_topic,
            begin_ms=begin_ms,
            end_ms=end_ms,
            ids=ids,
            is_dry=dry_run,
        )
        return await Redrives(self._client, group, request).run(most, on_progress)

    @during_block
    async def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[TraceRecord]:
        """Return the trace records of a message, the earliest first.

        Only clients with tracing switched on write them. At most 64 messages of the trace topic are
        read from each group of brokers.

        Args:
            message_id: the id that its send returned.
            trace_topic: the topic that clients write their traces to.

        Raises:
            RouteNotFound, RequestRefused: see `find`.
        """
        found = await self.find(trace_topic, message_id, most=MAX_FOUND)
        return trace_of(message_id, reversed(found))

    @during_block
    async def statistics(self, name: str, key: str) -> dict[str, Statistic]:
        """Return what the leaders have counted in the last minute, hour and day.

        docs/statistics.md lists the names and their keys.

        Args:
            name: the name of the statistic, such as "TOPIC_PUT_NUMS".
            key: a topic, "topic@group", or whatever key the name has.

        Returns:
            Statistics by the name of the group of brokers; a group without any is left out.

        Raises:
            NoMaster, NameServersUnreachable, RequestRefused: see `create_topic`.
        """
        replies = await self._leaders.ask_each(
            requests.broker_statistics(name, key), "tell statistics", accepted=_COUNTED_OR_NOT
        )
        return {
            broker_name: decode_statistic(reply.body)
            for broker_name, reply in replies.items()
            if reply.code == ResponseCode.SUCCESS
        }

    def group(self, name: str) -> ConsumerGroup:
        """Return the administration of one consumer group.

        Raises:
            InvalidMessage: the name is not legal.
        """
        check_group(name)
        self._lifetime.check_open()
        return ConsumerGroup(self._client, name)

    @during_block
    async def groups_of(self, topic: str) -> list[str]:
        """Return the sorted names of the groups that subscribe to a topic, or have consumed it."""
        replies = await self._leaders.ask_each(
            requests.groups_of_topic(topic), "list the groups of a topic", topic=topic
        )
        return sorted({one for reply in replies.values() for one in decode_group_list(reply.body)})

    @during_block
    async def settings(self) -> dict[str, dict[str, str]]:
        """Return the settings in force, by the name of the group of brokers."""
        replies = await self._leaders.ask_each(requests.broker_settings(), "show its settings")
        return {name: decode_properties_text(reply.body) for name, reply in replies.items()}

    @during_block
    async def change_settings(self, values: Mapping[str, str], *, broker_name: str = "") -> None:
        """Change settings of running brokers: all of `values`, or none.

        All members of a group of brokers apply and keep them. docs/settings.md lists what can be
        changed.

        Args:
            values: by name; an empty text restores the command line's value.
            broker_name: only this group of brokers; all when empty.

        Raises:
            RequestRefused: a setting does not exist, cannot be changed, or has an illegal value.
        """
        check_kind("Admin", "values", values, Mapping, "a mapping of texts by name")
        check_kind("Admin", "broker_name", broker_name, str, "the name of a group of brokers")
        await self._leaders.ask_each(
            requests.change_settings(values),
            "change settings",
            names={broker_name} if broker_name else None,
        )

    @during_block
    async def set_request_mode(self, mode: RequestMode, *, cluster: str = "") -> None:
        """Set on every group of brokers how the members of a consumer group read a topic.

        It concerns consumers that ask brokers for their queues (`PopConsumer(..., assigned=True)`).

        Args:
            mode: the mode.
            cluster: only the groups of this cluster; all groups when empty.

        Raises:
            NoMaster, NameServersUnreachable, RequestRefused: see `create_topic`.
        """
        check_kind("Admin", "mode", mode, RequestMode, "RequestMode(...)")
        await self._leaders.ask_each(
            pop_requests.set_request_mode(mode),
            "set a request mode",
            cluster=cluster,
            topic=mode.topic,
        )

    @during_block
    async def request_modes(self) -> list[RequestMode]:
        """Return all request modes that were set, sorted by topic and group.

        Raises:
            NoMaster, NameServersUnreachable, RequestRefused: see `create_topic`.
        """
        replies = await self._leaders.ask_each(
            pop_requests.request_modes(), "tell the request modes"
        )
        return sorted({one for reply in replies.values() for one in decode_modes(reply.body)})


def _received(body: bytes, queue: MessageQueue) -> list[ReceivedMessage]:
    """Raises MessageMalformed."""
    return [received(record, queue) for record in decode_records(body)]
