"""Pops that brokers hold until messages come."""

from collections.abc import Callable

import trio

from dledger_mq.connection.client import Client
from dledger_mq.connection.topic_route import ClientRoute
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError


class _Held:
    """A pop on its way. It ends with an outcome, or without one when another broker leads."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ended = trio.Event()
        self.outcome: Command | RemotingError | None = None
        self.is_waited_for = True


class HeldPops:
    """Sends pops, and notices when the broker that holds one does not lead any more.

    A leader that is frozen or cut off closes no connection: brokers that hold pops are probed, and
    a route with another leader ends the pops that the old one holds.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: dict[tuple[str, str], set[_Held]] = {}  # by topic and broker
        client.routes.watch(self._route_changed)

    async def ask(
        self,
        address: str,
        queue: MessageQueue,
        command: Command,
        timeout_s: float,
        late: Callable[[Command], None],
    ) -> Command | None:
        """Send a pop and wait for its answer; None if another broker leads now.

        Args:
            address: of the leader.
            queue: one of its queues, of the topic.
            command: the pop.
            timeout_s: how long to wait.
            late: called with an answer that has messages in it and comes after the wait has ended.

        Raises:
            RemotingError: there is no answer.
        """
        held = _Held(address)

        def settle(outcome: Command | RemotingError) -> None:
            if held.is_waited_for:
                held.outcome = outcome
                held.ended.set()
            elif isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS:
                late(outcome)

        key = queue.topic, queue.broker_name
        self._held.setdefault(key, set()).add(held)
        self._client.remoting.request_nowait(address, command, settle, timeout_s)
        try:
            with self._client.silence.held_by(address, queue):
                await held.ended.wait()
        except trio.Cancelled:
            held.is_waited_for = False
            if held.outcome is not None:
                settle(held.outcome)  # it came just before
            raise
        finally:
            held.is_waited_for = False
            others = self._held[key]
            others.discard(held)
            if not others:
                del self._held[key]
        if isinstance(held.outcome, RemotingError):
            raise held.outcome
        return held.outcome

    def _route_changed(self, route: ClientRoute) -> None:
        for broker_name, master in route.masters.items():
            for held in self._held.get((route.topic, broker_name), ()):
                if held.address != master:
                    held.ended.set()
