"""A name server and brokers of a few lines, whose every answer a test can change."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from remoting.bodies.consumer_group import (
    decode_queue_lock,
    encode_consumer_list,
    encode_locked_queues,
)
from remoting.bodies.heartbeat import decode_heartbeat
from remoting.bodies.route import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRoute,
    encode_cluster_info,
    encode_route,
)
from remoting.message.batch import decode_batch_body
from remoting.message.properties import edit_properties, properties_bytes
from remoting.message.record import MessageRecord, encode_record
from remoting.net.address import Address
from remoting.net.answering import answer_each
from remoting.net.connection import Connection
from remoting.net.server import serve
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

Answer = Callable[[Connection, Command], Command | None]

GROUP_NAME = "broker-a"


class Peer:
    """A server that remembers what it was asked, and answers from a table."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[Command] = []
        self.connections: set[Connection] = set()
        self.answers: dict[int, Answer] = {}

    def on_open(self, connection: Connection) -> None:
        self.connections.add(connection)

    def on_close(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, self._answer)

    def asked(self, code: int) -> list[Command]:
        """The requests of one code, in their order."""
        return [command for command in self.requests if command.code == code]

    def cut(self) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            connection.close("the test cut it")

    def _answer(self, connection: Connection, command: Command) -> Command | None:
        self.requests.append(command)
        answer = self.answers.get(command.code)
        return command.reply(3) if answer is None else answer(connection, command)


class ScriptedNames(Peer):
    """A name server: its routes are what the test puts in."""

    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRoute] = {}
        self.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route

    def set_route(self, topic: str, master: str | None, queues: int = 2, perm: int = 6) -> None:
        """Let a topic have one group of brokers with this master."""
        self.routes[topic] = TopicRoute(
            [QueueData(GROUP_NAME, queues, queues, perm)],
            [BrokerData("DefaultCluster", GROUP_NAME, {} if master is None else {0: master})],
        )

    def set_cluster(self, info: ClusterInfo) -> None:
        """Let the name server know these brokers."""
        self.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda _, command: command.reply(
            body=encode_cluster_info(info)
        )

    def _route(self, _connection: Connection, command: Command) -> Command:
        route = self.routes.get(command.fields["topic"])
        if route is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        return command.reply(body=encode_route(route))


@dataclass
class Store:
    """What brokers of one group share, as if it were replicated."""

    queues: dict[tuple[str, int], list[MessageRecord]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    locks: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def append(self, record: MessageRecord) -> MessageRecord:
        queue = self.queues.setdefault((record.topic, record.queue_id), [])
        record.queue_offset = len(queue)
        record.physical_offset = 1000 * sum(map(len, self.queues.values()))
        queue.append(record)
        return record

    def put(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"") -> None:
        self.append(MessageRecord(topic, body, properties, queue_id))


class ScriptedBroker(Peer):
    """A broker that stores, gives and remembers, and never holds a pull longer than the test."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__()
        self.store = store or Store()
        self.members: dict[str, dict[Connection, str]] = {}
        self.held: list[tuple[Connection, Command]] = []
        self.answers |= {
            RequestCode.SEND_MESSAGE_V2: self.store_message,
            RequestCode.SEND_BATCH_MESSAGE: self.store_message,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: lambda _, c: c.reply(0, {"offset": "0"}),
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda _, c: c.reply(),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def on_close(self, connection: Connection) -> None:
        super().on_close(connection)
        for members in self.members.values():
            members.pop(connection, None)

    def put(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"") -> None:
        """Store a message and wake the pulls that wait for one."""
        self.store.put(topic, queue_id, body, properties)
        self._wake()

    def notify(self, group: str) -> None:
        """Say that the members of a group changed."""
        for connection in self.members.get(group, {}):
            connection.send_oneway(
                Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            )

    def store_message(self, _connection: Connection, command: Command) -> Command:
        """What a leader answers to a send."""
        fields = command.fields
        flags = int(fields["f"])
        parts = (
            [(part.body, part.properties) for part in decode_batch_body(command.body)]
            if fields["m"] == "true"
            else [(command.body, properties_bytes(fields["i"]))]
        )
        stored = [
            self.store.append(
                MessageRecord(fields["b"], body, run, int(fields["e"]), system_flag=flags)
            )
            for body, run in parts
        ]
        self._wake()
        return command.reply(
            0,
            {
                "msgId": ",".join(f"{one.physical_offset:032X}" for one in stored),
                "queueId": fields["e"],
                "queueOffset": str(stored[0].queue_offset),
            },
        )

    def _wake(self) -> None:
        held, self.held = self.held, []
        for connection, command in held:
            reply = self._pull(connection, command)
            if reply is not None:
                connection.send(reply)

    def _pull(self, connection: Connection, command: Command) -> Command | None:
        fields = command.fields
        queue = self.store.queues.get((fields["topic"], int(fields["queueId"])), [])
        offset, end = int(fields["queueOffset"]), len(queue)
        if offset >= end and int(fields["sysFlag"]) & 2 and offset == end:
            self.held.append((connection, command))
            return None
        found = queue[offset : offset + int(fields["maxMsgNums"])]
        code = 21 if offset > end else (0 if found else 19)
        position = end if offset > end else offset + len(found)
        return command.reply(
            code,
            {
                "nextBeginOffset": str(position),
                "minOffset": "0",
                "maxOffset": str(end),
                "suggestWhichBrokerId": "0",
            },
            b"".join(encode_record(record) for record in found),
        )

    def _query_offset(self, _connection: Connection, command: Command) -> Command:
        fields = command.fields
        key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        offset = self.store.offsets.get(key)
        return command.reply(22) if offset is None else command.reply(0, {"offset": str(offset)})

    def _update_offset(self, _connection: Connection, command: Command) -> Command:
        fields = command.fields
        key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        self.store.offsets[key] = int(fields["commitOffset"])
        return command.reply()

    def _max_offset(self, _connection: Connection, command: Command) -> Command:
        queue = self.store.queues.get((command.fields["topic"], int(command.fields["queueId"])), [])
        return command.reply(0, {"offset": str(len(queue))})

    def _heartbeat(self, connection: Connection, command: Command) -> Command:
        heartbeat = decode_heartbeat(command.body)
        for consumer in heartbeat.consumers:
            members = self.members.setdefault(consumer.group, {})
            if connection not in members:
                members[connection] = heartbeat.client_id
                self.notify(consumer.group)
        return command.reply()

    def _consumer_list(self, _connection: Connection, command: Command) -> Command:
        members = self.members.get(command.fields["consumerGroup"])
        if not members:
            return command.reply(1, remark="no consumer for this group")
        return command.reply(body=encode_consumer_list(members.values()))

    def lock(self, _connection: Connection, command: Command) -> Command:
        """What a leader answers to an ordered consumer; locks do not expire here."""
        asked = decode_queue_lock(command.body)
        owned = [
            queue
            for queue in asked.queues
            if self.store.locks.setdefault(
                (asked.group, queue.topic, queue.queue_id), asked.client_id
            )
            == asked.client_id
        ]
        return command.reply(body=encode_locked_queues(owned))

    def _unlock(self, _connection: Connection, command: Command) -> Command:
        asked = decode_queue_lock(command.body)
        for queue in asked.queues:
            key = (asked.group, queue.topic, queue.queue_id)
            if self.store.locks.get(key) == asked.client_id:
                del self.store.locks[key]
        return command.reply()

    def _send_back(self, _connection: Connection, command: Command) -> Command:
        position = int(command.fields["offset"])
        for queue in list(self.store.queues.values()):
            for record in queue:
                if record.physical_offset == position:
                    run = edit_properties(record.properties, {"RETRY_TOPIC": record.topic})
                    again = MessageRecord(
                        f"%RETRY%{command.fields['group']}",
                        record.body,
                        run,
                        0,
                        reconsume_times=record.reconsume_times + 1,
                    )
                    self.store.append(again)
                    self._wake()
                    return command.reply()
        return command.reply(1, remark="no message there")


async def start(nursery: trio.Nursery, peer: Peer) -> str:
    """Let a peer listen; its address."""
    address: Address = await nursery.start(serve, "127.0.0.1", 0, peer)
    peer.address = str(address)
    return peer.address


@asynccontextmanager
async def scripted(
    *brokers: ScriptedBroker,
    names: ScriptedNames | None = None,
    group: str = "",
    queues: int = 2,
) -> AsyncIterator[ScriptedNames]:
    """A name server and brokers; the first leads topic T, and the retry topic of a group."""
    names = names or ScriptedNames()
    async with trio.open_nursery() as nursery:
        for peer in (names, *brokers):
            await start(nursery, peer)
        if brokers:
            names.set_route("T", brokers[0].address, queues)
        if brokers and group:
            names.set_route(f"%RETRY%{group}", brokers[0].address, 1)
        yield names
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something has come about, at most five seconds."""
    with trio.fail_after(5):
        # What is waited for has no event of its own: it is the effect of several messages.
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.005)
