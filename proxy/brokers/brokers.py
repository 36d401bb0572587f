"""Requests to the leaders of brokers' groups, for calls of clients."""

from collections.abc import Collection, Iterable
from typing import Final

import trio

from dledger_mq.connection.calls import call_master, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.connection.this_process import now_ms
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.errors import MessagingError, NameServersUnreachable, NoBrokerLeads, NoMaster
from proxy.caller import Caller, represented
from proxy.statuses import Refused, refused_by
from proxy.wire.messages_pb2 import Code
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# How long a request follows elections. An election takes a second; clients wait for three.
REQUEST_S: Final = 5.0

# What is left of a client's time for the last pause after a failure, and for the way of the answer;
# no more than a quarter of it.
_WAY_BACK_S: Final = 0.4

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})


class Brokers:
    """The brokers that the name servers know. Failures are what to answer: `Refused`.

    Args:
        client: its connections.
        is_user: whether the client has credentials: then brokers are told for whom it asks.

    Attributes:
        some_topic: one that existed lately; None before the first.
    """

    def __init__(self, client: Client, *, is_user: bool = False) -> None:
        self.client: Final = client
        self.is_user: Final = is_user
        self.some_topic: str | None = None

    def speak_for(self, caller: Caller | None, command: Command) -> None:
        """Add whose request it is, if brokers are to know. Raises Refused (40100)."""
        if self.is_user and caller is not None:
            represented(caller, now_ms()).add_to(command.fields)

    async def route(self, topic: str) -> ClientRoute:
        """Return where a topic is. Raises Refused (40402, 50002)."""
        try:
            route = await self.client.routes.find(topic)
        except MessagingError as error:
            raise refused_by(error) from error
        self.some_topic = topic
        return route

    async def refreshed(self, topic: str, deadline_s: float | None) -> ClientRoute:
        """Return a route with a queue to write to, once there is one.

        Raises Refused; (40300) all brokers have leaders, and none takes messages.
        """
        until = trio.current_time() + REQUEST_S
        if deadline_s is not None:
            until = min(until, deadline_s - _WAY_BACK_S)
        failures = 0
        while True:
            try:
                route = await self.client.routes.refresh(topic)
                if route.write_queues:
                    return route
                if route.masters and all(
                    queue.broker_name in route.masters for queue in route.read_queues
                ):
                    raise Refused(
                        Code.FORBIDDEN,
                        f"topic {topic} takes no messages: give it the permission to write",
                    )
                problem: MessagingError = NoMaster(topic, "")
            except (NoMaster, NoBrokerLeads, NameServersUnreachable) as error:
                problem = error
            except MessagingError as error:
                raise refused_by(error) from error
            failures += 1
            if trio.current_time() >= until:
                raise refused_by(problem) from problem
            await trio.sleep(pause_s(failures))

    async def has_broker(self, topic: str, broker_name: str) -> bool:
        """Return whether a broker has a topic, with or without a leader now, and whether or not
        its queues may be read.

        Raises Refused (40402, 50002).
        """
        route = await self.route(topic)
        return broker_name in route.masters or _has(route.read_queues, broker_name)

    async def may_read(self, topic: str, broker_name: str) -> bool:
        """Return whether a broker has queues that may be read. Raises as `has_broker`."""
        return _has((await self.route(topic)).read_queues, broker_name)

    async def ask(
        self,
        caller: Caller | None,
        queue: MessageQueue,
        command: Command,
        what: str,
        *,
        accepted: Collection[int] = _SUCCESS,
        attempt_s: float = REQUEST_S,
        timeout_s: float = REQUEST_S,
    ) -> Command:
        """Ask the leader of a queue's broker, through elections, until the client's deadline.

        Args:
            caller: for whom; None: for the proxy itself.
            queue: of the broker that is asked.
            command: may be carried out twice, if an answer is lost.
            what: the request in words: "send a message".
            accepted: the response codes that are no refusals.
            attempt_s: how long to wait for one answer.
            timeout_s: how long to follow elections.

        Raises:
            Refused: the broker refuses it, or there was no answer in time.
        """
        self.speak_for(caller, command)
        if caller is not None and caller.deadline_s is not None:
            left = caller.deadline_s - trio.current_time()
            timeout_s = min(timeout_s, left - min(_WAY_BACK_S, left / 4))
        try:
            return await call_master(
                self.client,
                queue,
                command,
                what,
                accepted=accepted,
                timeout_s=timeout_s,
                attempt_s=min(attempt_s, timeout_s),
            )
        except (MessagingError, RemotingError) as error:
            raise refused_by(error) from error

    async def ask_any(
        self, caller: Caller | None, topic: str, command: Command, what: str
    ) -> Command:
        """Ask one of the brokers that have a topic. Raises Refused."""
        route = await self.route(topic)
        queues = route.read_queues or route.write_queues
        if not queues:
            raise Refused(Code.TOPIC_NOT_FOUND, f"topic {topic} has no queue")
        # One with a leader, if there is one: all have the same topics and groups.
        led = next((queue for queue in queues if queue.broker_name in route.masters), queues[0])
        return await self.ask(caller, led, command, what)


def _has(queues: Iterable[MessageQueue], broker_name: str) -> bool:
    return any(queue.broker_name == broker_name for queue in queues)
