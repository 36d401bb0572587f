"""Brokers of which a test writes every answer, without network: time may be virtual."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import trio

from dledger_mq import Client
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.errors import RouteNotFound
from proxy.server import Proxy
from remoting.bodies.message_queue import MessageQueue
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, encode_record
from remoting.net.errors import RequestTimedOut
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.proxy.real_proxy import Served

ADDRESS = "broker:10911"
Answer = Callable[[Command], "Command | RemotingError | None"]


class ScriptedBrokers:
    """Stands in for the client of a proxy.

    Attributes:
        asked: the requests, in their order.
        answers: by request code; None as an answer is silence.
        routes: by topic.
        refreshes: how often a name server was asked for a route.
        slow_s: how long answers take, by code.
        checks: what is called with a broker's question about a transaction, by group.
        others: what is called with other questions of brokers, by request code.
        types: the types of topics; that of all others is unset.
        groups: the configurations of groups; all others are unknown.
        given: the messages of the next pops.
        watchers: are told of routes.
        questions: what is called with other requests of brokers, by code.
        address: of the broker that is being asked.
    """

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.routes_of: dict[str, ClientRoute] = {}
        self.refreshes = 0
        self.slow_s: dict[int, float] = {}
        self.checks: dict[str, Any] = {}
        self.heartbeats = 0
        self.address = ""
        self.types: dict[str, str] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.given: list[list[MessageRecord]] = []
        self.questions: dict[int, Any] = {}
        self.watchers: list[Callable[[ClientRoute], None]] = []
        self.answers: dict[int, Answer] = {
            RequestCode.GET_TOPIC_CONFIG: self._topic,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
            RequestCode.SEND_MESSAGE_V2: self.stored,
            RequestCode.POP_MESSAGE: self.popped,
            RequestCode.ACK_MESSAGE: lambda command: command.reply(),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.changed,
            RequestCode.END_TRANSACTION: lambda command: command.reply(),
            RequestCode.CONSUMER_SEND_MSG_BACK: lambda command: command.reply(),
            RequestCode.RECALL_MESSAGE: lambda command: command.reply(0, {"msgId": "recalled"}),
            RequestCode.CHECK_ACCESS: lambda command: command.reply(),
            RequestCode.LITE_SUBSCRIPTION_CTL: lambda command: command.reply(),
        }

    def topic(self, name: str, queues: int = 2, *, brokers: Sequence[str] = ("broker-a",)) -> str:
        """Let there be a topic."""
        found = tuple(
            MessageQueue(name, broker, number) for broker in brokers for number in range(queues)
        )
        self.route(ClientRoute(name, found, found, dict.fromkeys(brokers, ADDRESS)))
        return name

    def route(self, route: ClientRoute) -> None:
        """Let the route of a topic be another one, and be known at once."""
        self.routes_of[route.topic] = route
        for watcher in self.watchers:
            watcher(route)

    def elect_another(self, name: str) -> None:
        """Let another broker lead."""
        route = self.routes_of[name]
        masters = dict.fromkeys(route.masters, "another:10911")
        self.route(ClientRoute(name, route.write_queues, route.read_queues, masters))

    def without_leader(self, name: str) -> None:
        """Let an election begin."""
        route = self.routes_of[name]
        self.routes_of[name] = ClientRoute(name, (), route.read_queues, {})

    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    def of(self, code: int) -> list[Command]:
        return [command for command in self.asked if command.code == code]

    # What a client of `dledger_mq` has.

    @property
    def routes(self) -> ScriptedBrokers:
        return self

    @property
    def remoting(self) -> ScriptedBrokers:
        return self

    @property
    def silence(self) -> ScriptedBrokers:
        return self

    @contextmanager
    def held_by(self, _address: str, _queue: MessageQueue) -> Iterator[None]:
        yield

    def watch(self, watcher: Callable[[ClientRoute], None]) -> None:
        self.watchers.append(watcher)

    def answer(self, code: int, asked: Any) -> None:
        self.questions[code] = asked

    def gather(self) -> None:
        pass

    def check_open(self) -> None:
        pass

    def known(self, topic: str) -> ClientRoute | None:
        return self.routes_of.get(topic)

    async def find(self, topic: str) -> ClientRoute:
        await trio.lowlevel.checkpoint()
        if topic not in self.routes_of:
            raise RouteNotFound(topic, ("names:9876",))
        return self.routes_of[topic]

    async def refresh(self, topic: str) -> ClientRoute:
        self.refreshes += 1
        return await self.find(topic)

    def add_producer(self, group: str, asked: Any) -> None:
        if asked is not None:  # the group of all proxies has no transactions
            self.checks[group] = asked

    async def remove_producer(self, group: str, _asked: Any) -> None:
        del self.checks[group]
        await trio.lowlevel.checkpoint()

    async def send_heartbeats(self) -> None:
        self.heartbeats += 1
        await trio.lowlevel.checkpoint()

    def _outcome(self, command: Command) -> Command | RemotingError | None:
        self.asked.append(Command(command.code, dict(command.fields), command.body))
        answer = self.answers.get(command.code)
        if answer is None:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return answer(command)

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        self.address = address
        outcome = self._outcome(command)
        await trio.sleep(timeout_s if outcome is None else self.slow_s.get(command.code, 0.0))
        if outcome is None:
            raise RequestTimedOut(address, command.code, timeout_s)
        if isinstance(outcome, RemotingError):
            raise outcome
        return outcome

    def request_nowait(
        self, address: str, command: Command, settle: Callable[[Any], None], timeout_s: float
    ) -> None:
        async def ask() -> None:
            try:
                settle(await self.request(address, command, timeout_s))
            except RemotingError as error:
                settle(error)

        trio.lowlevel.spawn_system_task(ask)

    # What brokers answer, unless a test says otherwise.

    def _topic(self, command: Command) -> Command:
        name = command.fields["topic"]
        attributes = {"message.type": self.types[name]} if name in self.types else {}
        body = {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        return command.reply(body=json.dumps({**body, "attributes": attributes}).encode())

    def _group(self, command: Command) -> Command:
        found = self.groups.get(command.fields["group"])
        if found is None:
            return command.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="no such group")
        return command.reply(body=json.dumps({"groupName": "g", **found}).encode())

    def stored(self, command: Command) -> Command:
        """What a leader answers to a send."""
        place = len(self.of(RequestCode.SEND_MESSAGE_V2))
        fields = {
            "msgId": f"7F00000100002A9F{place:016X}",
            "queueId": command.fields["e"],
            "queueOffset": str(place),
            "recallHandle": "a handle",
        }
        return command.reply(0, fields)

    def popped(self, command: Command) -> Command:
        """What a leader answers to a pop."""
        if not self.given:
            return command.reply(ResponseCode.POLLING_TIMEOUT)
        records = self.given.pop(0)
        fields = {
            "popTime": "1700000000000",
            "invisibleTime": command.fields["invisibleTime"],
            "reviveQid": "0",
        }
        return command.reply(0, fields, b"".join(map(encode_record, records)))

    def changed(self, command: Command) -> Command:
        fields = {
            "popTime": "1700000001000",
            "invisibleTime": command.fields["invisibleTime"],
            "reviveQid": "0",
        }
        return command.reply(0, fields)


def record(topic: str, offset: int, body: bytes = b"body", **properties: str) -> MessageRecord:
    """A message as a broker stores it."""
    run = encode_properties({"UNIQ_KEY": f"id-{offset}", **properties})
    made = MessageRecord(topic, body, run, 0)
    made.queue_offset, made.physical_offset = offset, 1000 * offset
    return made


class ScriptedProxy(Served):
    """A proxy on brokers of a script.

    Attributes:
        brokers: whose answers the test writes.
    """

    def __init__(self, proxy: Proxy, nursery: trio.Nursery, brokers: ScriptedBrokers) -> None:
        super().__init__(proxy, nursery)
        self.brokers = brokers


@asynccontextmanager
async def scripted_proxy(*, is_user: bool = False) -> AsyncIterator[ScriptedProxy]:
    brokers = ScriptedBrokers()
    async with trio.open_nursery() as nursery:
        proxy = Proxy(cast(Client, brokers), nursery, is_user=is_user)
        yield ScriptedProxy(proxy, nursery, brokers)
        nursery.cancel_scope.cancel()
